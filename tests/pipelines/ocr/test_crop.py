import numpy as np
import pytest

from paddlewheel.pipelines.ocr.buckets import LINE_HEIGHT, LINE_WIDTHS
from paddlewheel.pipelines.ocr.crop import Floats, Picture, cut, is_long, stands, turned


def box(left: float, top: float, width: float, height: float) -> Floats:
    """Return an upright box."""
    right, bottom = left + width, top + height
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)], np.float32)


def half_dark() -> Picture:
    """Return a picture whose left half is black."""
    pixels = np.full((200, 400, 3), 255, np.uint8)
    pixels[:, :200] = 0
    return pixels


@pytest.mark.parametrize(
    ("quarters", "dark"), [(0, np.s_[:, :20]), (1, np.s_[-10:]), (2, np.s_[:, -20:]), (3, np.s_[:10])]
)
def test_a_turned_box_is_cut_upright(quarters: int, dark: tuple[slice, ...] | slice) -> None:
    """What lies left in the picture comes out at the bottom, right or top of a turned line."""
    line = cut(half_dark(), turned(box(100, 50, 200, 100), quarters))
    assert line[dark].mean() < 30
    assert 100 < line.mean() < 155


def test_a_line_fills_its_bucket_and_a_short_one_stays_itself() -> None:
    """Crops are as wide as their bucket, or narrower than the least."""
    assert cut(half_dark(), box(10, 10, 300, 40)).shape == (LINE_HEIGHT, 352, 3)
    assert cut(half_dark(), box(10, 10, 40, 40)).shape == (LINE_HEIGHT, LINE_HEIGHT, 3)


def test_an_endless_line_is_squeezed() -> None:
    """A line wider than the widest bucket costs no more than that."""
    assert cut(np.zeros((4, 4000, 3), np.uint8), box(0, 0, 4000, 4)).shape == (LINE_HEIGHT, LINE_WIDTHS[-1], 3)


def test_beyond_the_picture_its_edge_goes_on() -> None:
    """A box that sticks out brings no black bars."""
    assert cut(np.full((50, 300, 3), 200, np.uint8), box(-20, -10, 340, 70)).min() == 200


def test_a_box_without_area_is_cut_all_the_same() -> None:
    """Nothing divides by zero."""
    assert cut(half_dark(), box(10, 10, 0, 0)).shape == (LINE_HEIGHT, LINE_HEIGHT, 3)


def test_the_shape_tells_rows_from_standing_lines_and_lone_characters() -> None:
    """A box of a lone digit stands but does not tell where its text runs."""
    assert not stands(box(0, 0, 100, 30))
    assert stands(box(0, 0, 20, 30))
    assert is_long(box(0, 0, 100, 30))
    assert not is_long(box(0, 0, 20, 30))
