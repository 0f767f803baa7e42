import io
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from paddlewheel.engines.predictor import Arrays, Predictor
from paddlewheel.errors import (
    CancelledByCallerError,
    DeadlineExceededError,
    InvalidArgumentError,
    PaddlewheelError,
    UndecodableError,
    UnsupportedFormatError,
)
from paddlewheel.inference import Answer, Tensor
from paddlewheel.pipelines.ocr.pipeline import OcrPipeline
from paddlewheel.pipelines.pipeline import Item, Outcome

Picture = Callable[..., Item]
Read = Callable[..., Answer]
Texts = Sequence[tuple[int, int, str]]

FONT = "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc"
KEYS = {"width", "height", "warnings", "scale", "rotation", "truncated"}
OUTPUTS = ["text", "score", "box", "box_score", "angle", "angle_score"]


def drawn(size: tuple[int, int], texts: Texts, font: int = 32, turn: float = 0) -> bytes:
    """Return a PNG of `texts`, each (x, y, text), turned counter-clockwise."""
    sheet = Image.new("RGB", size, "white")
    pen, face = ImageDraw.Draw(sheet), ImageFont.truetype(FONT, font, index=2)
    for x, y, text in texts:
        pen.text((x, y), text, fill="black", font=face)
    return png(sheet.rotate(turn, expand=True, fillcolor="white", resample=Image.Resampling.BICUBIC))


def png(sheet: Image.Image) -> bytes:
    """Return a picture as a file."""
    file = io.BytesIO()
    sheet.save(file, "PNG")
    return file.getvalue()


@contextmanager
def noted_shapes(pipeline: OcrPipeline) -> Iterator[list[tuple[tuple[int, ...], int | None]]]:
    """Note the shape of each input of the networks, and the threads, for as long as the block runs."""
    noted: list[tuple[tuple[int, ...], int | None]] = []
    with pytest.MonkeyPatch.context() as patch:
        for network in (pipeline._detection, pipeline._orientation, pipeline._recognition):
            predictor = network.predictor

            def run(inputs: Arrays, threads: int | None = None, predictor: Predictor = predictor) -> Arrays:
                noted.append((next(iter(inputs.values())).shape, threads))
                return predictor.run(inputs, threads)

            noting = SimpleNamespace(run=run, inputs=predictor.inputs, outputs=predictor.outputs)
            patch.setattr(network, "predictor", noting)
        yield noted


def lines(answer: Answer) -> list[str]:
    """Return the text of an answer, without spaces."""
    return [text.replace(" ", "") for text in answer.output("text").strings()]


def answers(outcomes: Sequence[Outcome]) -> list[Answer]:
    """Return outcomes that are all answers."""
    assert all(isinstance(outcome, Answer) for outcome in outcomes), outcomes
    return [outcome for outcome in outcomes if isinstance(outcome, Answer)]


@pytest.mark.parametrize("name", ["card.jpg", "receipt.jpg", "menu.jpg", "page_rot90.png", "page_rot180.png"])
def test_every_line_of_the_samples_is_read_in_order(
    tiny: OcrPipeline, read: Read, truth: dict[str, list[str]], name: str
) -> None:
    """The smallest networks read each sample without a fault, however it is turned."""
    assert lines(read(tiny, name)) == truth[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["card.jpg", "receipt.jpg", "menu.jpg", "page.png"])
def test_the_default_networks_read_the_samples_too(
    small: OcrPipeline, read: Read, truth: dict[str, list[str]], name: str
) -> None:
    """The default networks read each sample without a fault."""
    assert lines(read(small, name)) == truth[name]


@pytest.mark.parametrize(("name", "rotation"), [("page.png", 0), ("page_rot90.png", 270), ("page_rot180.png", 180)])
def test_a_turn_is_reported(tiny: OcrPipeline, read: Read, name: str, rotation: int) -> None:
    """The page's and each line's turn, clockwise, and corners that begin at the top left of the text as it is read."""
    answer = read(tiny, name)
    assert answer.parameters["rotation"] == rotation
    assert set(answer.output("angle").numpy().tolist()) == {rotation}
    assert answer.output("angle_score").numpy().min() > 0.5
    corners = answer.output("box").numpy()
    along = corners[:, 1] - corners[:, 0]
    assert np.allclose(np.degrees(np.arctan2(along[:, 1], along[:, 0])) % 360 % 359, rotation, atol=2)


def test_boxes_are_pixels_of_the_picture(tiny: OcrPipeline, read: Read) -> None:
    """A box encloses the ink of its line and little more, in the picture's own pixels."""
    answer = read(tiny, drawn((1600, 1200), [(700, 500, "测试文本")], font=60))  # ink from (703, 519) to (937, 574)
    (box,) = answer.output("box").numpy()
    assert (answer.parameters["width"], answer.parameters["height"]) == (1600, 1200)
    assert box.min(axis=0) == pytest.approx([690, 500], abs=15)
    assert box.max(axis=0) == pytest.approx([950, 588], abs=15)


@pytest.mark.parametrize("shade", ["white", "black", "noise"])
@pytest.mark.parametrize("parameters", [{}, {"boxes_only": True}, {"text_only": True}, {"orientation": False}])
def test_a_page_without_text_has_the_same_keys_and_empty_lists(
    tiny: OcrPipeline, read: Read, shade: str, parameters: dict[str, bool]
) -> None:
    """Nothing to read is a success like any other."""
    noise = np.random.default_rng(1).integers(0, 255, (300, 400, 3), np.uint8)
    sheet = Image.fromarray(noise) if shade == "noise" else Image.new("RGB", (400, 300), shade)
    answer = read(tiny, png(sheet), **parameters)
    assert [output.name for output in answer.outputs] == OUTPUTS
    assert [output.shape for output in answer.outputs] == [(0,), (0,), (0, 4, 2), (0,), (0,), (0,)]
    assert set(answer.parameters) == KEYS
    assert set(answer.timing_ms) == {"decode", "detection", "orientation", "recognition"}


@pytest.mark.parametrize("size", [(1, 1), (4000, 1), (1, 4000), (16, 16), (31, 33), (33, 63)])
@pytest.mark.parametrize("noisy", [False, True])
def test_tiny_pictures_are_empty_and_quick(
    tiny: OcrPipeline, read: Read, size: tuple[int, int], *, noisy: bool
) -> None:
    """Neither a crash nor a huge enlargement."""
    shape = (size[1], size[0], 3)
    pixels = np.random.default_rng(1).integers(0, 255, shape, np.uint8) if noisy else np.full(shape, 99, np.uint8)
    answer = read(tiny, png(Image.fromarray(pixels)))
    assert lines(answer) == []
    assert answer.parameters["scale"] <= 2


def test_an_answer_does_not_depend_on_its_company(tiny: OcrPipeline, picture: Picture) -> None:
    """Boxes and text are the same alone, in a batch, and in a batch of another order; scores within 1e-5."""
    names = ["card.jpg", "receipt.jpg", "page_rot180.png", "blank.png", "menu.jpg", "vertical.jpg"]
    alone = [tiny.run([picture(name)])[0] for name in names]
    together = tiny.run([picture(name) for name in names])
    reverse = tiny.run([picture(name) for name in reversed(names)])[::-1]
    for first, *others in zip(answers(alone), answers(together), answers(reverse), strict=True):
        for other in others:
            assert other.output("text").strings() == first.output("text").strings()
            assert np.array_equal(other.output("box").numpy(), first.output("box").numpy())
            assert np.array_equal(other.output("angle").numpy(), first.output("angle").numpy())
            assert np.allclose(other.output("score").numpy(), first.output("score").numpy(), atol=1e-5)
            assert other.parameters == first.parameters


def test_each_gets_its_own_answer_or_its_own_error(
    tiny: OcrPipeline, picture: Picture, truth: dict[str, list[str]]
) -> None:
    """What is broken, of no known kind, wrongly asked for, abandoned or late fails alone."""
    broken = drawn((400, 300), [(20, 20, "断")])[:-500]
    good = picture("menu.jpg")
    batch = [
        good,
        picture(broken),
        picture(b"no picture at all"),
        picture("card.jpg", det_limit_side=7),
        replace(picture("card.jpg"), abandoned=lambda: True),
        replace(picture("card.jpg"), deadline=time.monotonic() - 1),
        replace(good, inputs=()),
        replace(good, inputs=(Tensor.from_elements("image", [b"", b""]),)),
        good,
    ]
    outcomes = tiny.run(batch)
    kinds: list[type[PaddlewheelError]] = [
        UndecodableError,
        UnsupportedFormatError,
        InvalidArgumentError,
        CancelledByCallerError,
        DeadlineExceededError,
        InvalidArgumentError,
        InvalidArgumentError,
    ]
    assert [type(outcome) for outcome in outcomes[1:-1]] == kinds
    assert [lines(answer) for answer in answers([outcomes[0], outcomes[-1]])] == [truth["menu.jpg"]] * 2


def test_no_stage_runs_for_a_caller_who_is_gone(tiny: OcrPipeline, picture: Picture) -> None:
    """Whoever leaves after any number of looks gets the error, and no time is spent after that."""
    for patience in range(12):
        looks = iter(range(patience))
        item = replace(picture("card.jpg"), abandoned=lambda looks=looks: next(looks, None) is None)
        leaver, stayer = tiny.run([item, picture("menu.jpg")])
        assert isinstance(stayer, Answer)
        assert isinstance(leaver, CancelledByCallerError | Answer)
        if isinstance(leaver, Answer):
            assert patience > 3, "the pipeline looks once before each stage and each batch of lines"
            return
    pytest.fail("the caller was asked for without end")


def test_orientation_off_is_the_plain_result(tiny: OcrPipeline, read: Read) -> None:
    """On an upright page the option changes nothing; on one upside down, nothing is turned without it."""
    on, off = (read(tiny, "receipt.jpg", orientation=flag) for flag in (True, False))
    assert [bytes(output.data) for output in on.outputs[:5]] == [bytes(output.data) for output in off.outputs[:5]]
    plain = read(tiny, "page_rot180.png", orientation=False)
    assert plain.parameters["rotation"] == 0
    assert set(plain.output("angle_score").numpy().tolist()) <= {1.0}


@pytest.mark.parametrize("digits", ["609-989", "16891", "6", "8008"])
def test_upright_digits_are_not_flipped(tiny: OcrPipeline, read: Read, digits: str) -> None:
    """Digits that are digits upside down too stay as they are."""
    answer = read(tiny, drawn((500, 300), [(60, 40, "一号样品"), (60, 140, digits)], font=60))
    assert lines(answer) == ["一号样品", digits]
    assert answer.output("angle").numpy().tolist() == [0, 0]


@pytest.mark.parametrize(("turn", "angle"), [(90, 270), (180, 180), (270, 90)])
def test_lone_characters_turn_with_their_page(tiny: OcrPipeline, read: Read, turn: int, angle: int) -> None:
    """A box too short to tell its direction takes the page's."""
    sheet = drawn(
        (700, 400), [(60, 40, "今天天气很好我们去公园"), (60, 140, "数量"), (300, 140, "7")], font=50, turn=turn
    )
    answer = read(tiny, sheet)
    assert lines(answer) == ["今天天气很好我们去公园", "数量", "7"]
    assert answer.output("angle").numpy().tolist() == [angle] * 3


def test_vertical_columns_are_read_from_the_right(tiny: OcrPipeline, read: Read) -> None:
    """Upright characters one below the other are a line; columns go from right to left."""
    poem = ["白日依山尽", "黄河入海流", "欲穷千里目", "更上一层楼"]
    texts = [
        (400 - 110 * column, 60 + 78 * row, sign) for column, line in enumerate(poem) for row, sign in enumerate(line)
    ]
    assert lines(read(tiny, drawn((500, 520), texts, font=72))) == poem


@pytest.mark.parametrize("tilt", [0, 1, 3])
def test_a_tilted_form_keeps_its_order(tiny: OcrPipeline, read: Read, tilt: float) -> None:
    """Labels and values stay together."""
    form = [("姓名", "张三丰"), ("电话", "13800001111"), ("地址", "北京市海淀区"), ("日期", "2026-12-01")]
    texts = [(x, 60 + 80 * row, text) for row, pair in enumerate(form) for x, text in zip((80, 900), pair, strict=True)]
    answer = read(tiny, drawn((1200, 420), texts, turn=tilt))
    assert lines(answer) == [text for pair in form for text in pair]


@pytest.mark.parametrize(("height", "font", "repeats"), [(40, 24, 4), (24, 16, 8)])
def test_a_strip_is_read_whole(tiny: OcrPipeline, read: Read, height: int, font: int, repeats: int) -> None:
    """Text that reaches from edge to edge of a strip is found without enlarging it."""
    text = "异步推理服务把请求放进有界队列由后台工作进程成批取出模型只加载" * repeats
    answer = read(
        tiny, drawn((font * len(text) + 10, height), [(5, (height - font) // 2 - font // 4, text)], font=font)
    )
    assert "".join(lines(answer)) == text
    assert answer.parameters["scale"] <= 1


def test_small_text_is_searched_for_at_a_larger_scale(tiny: OcrPipeline, read: Read) -> None:
    """Where the first search finds small text, a second one finds the rest; a caller's limit is kept and warned of."""
    texts = [(40 + 400 * column, 40 + 40 * row, f"编号{row:02d}{column}甲") for row in range(55) for column in range(4)]
    sheet = drawn((1700, 2300), texts, font=18)
    full, coarse = read(tiny, sheet), read(tiny, sheet, det_limit_side=480)
    assert len(lines(full)) == len(texts)
    assert full.parameters["warnings"] == []
    assert coarse.parameters["scale"] == pytest.approx(480 / 2300, abs=1e-4)
    assert any("21% of its size" in warning for warning in coarse.parameters["warnings"])


@pytest.mark.slow
def test_more_than_a_thousand_boxes(small: OcrPipeline, read: Read) -> None:
    """No cap of a thousand: a page of 1600 boxes gives all, and says that nothing was left out."""
    texts = [(30 + 61 * column, 30 + 86 * row, f"{column:02d}A") for row in range(40) for column in range(40)]
    answer = read(small, drawn((2480, 3508), texts, font=16), boxes_only=True)
    assert answer.output("box").shape[0] >= 0.98 * len(texts)
    assert answer.parameters["truncated"] is False


def test_boxes_only_reads_nothing(tiny: OcrPipeline, read: Read) -> None:
    """Boxes with their scores, and empty text for each."""
    full, boxes = read(tiny, "card.jpg"), read(tiny, "card.jpg", boxes_only=True)
    assert np.array_equal(boxes.output("box").numpy(), full.output("box").numpy())
    assert boxes.output("text").strings() == [""] * 7
    assert np.array_equal(boxes.output("score").numpy(), boxes.output("box_score").numpy())
    assert boxes.timing_ms["recognition"] == 0


def test_text_only_has_no_boxes(tiny: OcrPipeline, read: Read) -> None:
    """The same text, no boxes."""
    full, text = read(tiny, "card.jpg"), read(tiny, "card.jpg", text_only=True)
    assert text.output("text") == full.output("text")
    assert text.output("box").shape == (0, 4, 2)


def test_the_score_threshold_leaves_weak_lines_out(tiny: OcrPipeline, read: Read) -> None:
    """Lines below the threshold are not in the answer; the others are unchanged."""
    full = read(tiny, "receipt.jpg", score_threshold=0)
    scores = full.output("score").numpy()
    limit = float(np.median(scores))
    strict = read(tiny, "receipt.jpg", score_threshold=limit)
    assert strict.output("score").numpy().tolist() == scores[scores >= limit].tolist()


def test_text_is_the_networks_own(tiny: OcrPipeline, read: Read) -> None:
    """Spaces, full-width signs and symbols come as they are read: neither trimmed nor normalised."""
    texts = ["How are you", "名称\uff1a测试", "5±0.2℃"]  # a full-width colon
    answer = read(tiny, drawn((700, 300), [(40, 40 + 70 * row, text) for row, text in enumerate(texts)]))
    assert answer.output("text").strings() == texts


def test_the_pipeline_says_what_it_runs_on(tiny: OcrPipeline) -> None:
    """Each network's precision and device, as loaded."""
    assert set(tiny.describe()) == {"detection", "orientation", "recognition"}
    assert all(" on cpu" in network for network in tiny.describe().values())


def test_a_usual_picture_meets_no_new_shape_after_the_warm_up(tiny: OcrPipeline, read: Read) -> None:
    """The networks that take most of the time have been run with every shape that it needs."""
    with noted_shapes(tiny) as shapes:
        tiny.warm_up((2, 1))
        warm = set(shapes)
        for name in ("card.jpg", "menu.jpg", "page.png"):
            read(tiny, name)
    assert {threads for _, threads in warm} == {1}, "as for a call that is alone"
    assert {shape for shape, _ in shapes} == {shape for shape, _ in warm}


def test_the_sample_is_read(tiny: OcrPipeline) -> None:
    """What a worker rehearses with goes all the way: it has lines with text."""
    (outcome,) = tiny.run([Item("rehearsal", tiny.sample())], 1)
    assert isinstance(outcome, Answer)
    assert "paddlewheel" in outcome.output("text").strings()[0]
