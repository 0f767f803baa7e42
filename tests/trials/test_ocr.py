"""Trials OCR-01, -03, -05, -07 and -08 of the field reports, over HTTP."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from conftest import RunningServer, StartServer
from drawing import FONT, drawn, encoded
from trials.ocr_calls import SETTINGS, post, text_of, together


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> RunningServer:
    """Return a server with the small pack."""
    return start_server(SETTINGS.format(pixels=60_000_000))


@pytest.mark.parametrize("digits", ["609-989", "16891", "8008"])
def test_ocr_01_upright_digits_stay_upright(server: RunningServer, digits: str) -> None:
    """Short numbers are not turned on weak evidence, and `orientation` off gives the same."""
    picture = encoded(drawn(digits))
    for orientation in ("true", "false"):
        response = server.client.post("/ocr", content=picture, params={"orientation": orientation})
        assert text_of(response) == digits
        assert response.json()["lines"][0]["angle"] == 0


def test_ocr_03_blank_pages_keep_their_shape_and_place(server: RunningServer) -> None:
    """White, black and noise have every key of a page with text, and answers do not change places."""
    noise = np.random.default_rng(3).integers(0, 256, (400, 600, 3), np.uint8)
    blanks = [Image.new("RGB", (600, 400), "white"), Image.new("RGB", (600, 400), "black"), Image.fromarray(noise)]
    one, two, *empty, three = together(
        server, [encoded(each) for each in (drawn("ONE"), drawn("TWO"), *blanks, drawn("THREE"))]
    )
    assert [text_of(response) for response in (one, two, three)] == ["ONE", "TWO", "THREE"]
    for response in empty[:2]:
        assert text_of(response) == ""
        assert response.json()["lines"] == []
    assert all(response.json().keys() == one.json().keys() for response in empty)
    assert server.metric('paddlewheel_requests_total{model="ocr",outcome="INTERNAL"}') == 0


def test_ocr_05_strips_are_read(server: RunningServer) -> None:
    """A line 6000 pixels long is found and not blown up; the answer says at which scale it was searched."""
    strip = Image.new("RGB", (3000, 44), "white")
    text = "A strip as long as a subtitle is read from its beginning to its end without being enlarged"
    ImageDraw.Draw(strip).text((20, 4), text, fill="black", font=ImageFont.truetype(FONT, 28, index=2))
    body = post(server, encoded(strip)).json()
    assert text.replace(" ", "")[:40] in body["text"].replace(" ", "").replace("\n", "")
    assert body["scale"] <= 2


def test_ocr_05_a_much_reduced_sheet_is_said_to_be_so(server: RunningServer) -> None:
    """A large sheet searched coarsely carries its scale and a warning."""
    sheet = Image.new("RGB", (9000, 6000), "white")
    ImageDraw.Draw(sheet).text((200, 200), "TITLE", fill="black", font=ImageFont.truetype(FONT, 400, index=2))
    body = post(server, encoded(sheet, "PNG", compress_level=1)).json()
    assert body["scale"] < 0.3
    assert body["warnings"]


def test_ocr_07_code_points_survive(server: RunningServer) -> None:
    """What the network reads is handed on as it is: full-width signs are not folded, nothing is trimmed."""
    assert "\N{FULLWIDTH COLON}" in text_of(post(server, encoded(drawn("名称\N{FULLWIDTH COLON}测试", (500, 120)))))
    assert post(server, encoded(drawn("How are you", (500, 120)))).json()["text"] == "How are you"


@pytest.mark.parametrize("tilt", [0, 1, 3])
def test_ocr_08_reading_order_under_a_tilt(server: RunningServer, tilt: float) -> None:
    """Labels and values of a form are paired the same at every tilt."""
    form = Image.new("RGB", (1200, 420), "white")
    pen, font = ImageDraw.Draw(form), ImageFont.truetype(FONT, 36, index=2)
    rows = [("姓名", "张三"), ("城市", "上海"), ("电话", "12345678"), ("日期", "2026年")]
    for index, (label, value) in enumerate(rows):
        pen.text((60, 60 + index * 80), label, fill="black", font=font)
        pen.text((980, 60 + index * 80), value, fill="black", font=font)
    tilted = form.rotate(tilt, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    lines = post(server, encoded(tilted)).json()["text"].replace(" ", "").split("\n")
    assert lines == [text for row in rows for text in row]
