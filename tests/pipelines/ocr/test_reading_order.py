import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.pipelines.ocr.crop import Floats, turned
from paddlewheel.pipelines.ocr.reading_order import reading_order

Rectangle = tuple[float, float, float, float]


def boxes(*rectangles: Rectangle) -> Floats:
    """Return boxes of (left, top, width, height)."""
    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in rectangles]
    return np.array(corners, np.float32).reshape(-1, 4, 2)


def rotated(upright: Floats, degrees: float) -> Floats:
    """Return boxes turned clockwise about the middle of a page."""
    angle = math.radians(degrees)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    turned_boxes: Floats = ((upright - 600) @ turn + 600).astype(np.float32)
    return turned_boxes


FORM = boxes(*((x, 100 + 60 * row, width, 36) for row in range(4) for x, width in ((60, 80), (960, 200))))
rectangles = st.tuples(st.floats(0, 1000), st.floats(0, 1000), st.floats(20, 400), st.floats(10, 60))


@pytest.mark.parametrize("tilt", [0, 1, 3, -1, -3, 90, 180, 270, 93, 177])
def test_a_form_is_read_row_by_row_at_any_tilt(tilt: float) -> None:
    """Labels stay with their values on a tilted page, a page on its side and one upside down."""
    assert reading_order(rotated(FORM, tilt)) == list(range(8))


def test_short_boxes_found_straight_do_not_hide_a_tilt() -> None:
    """On a page tilted by three degrees, labels of two characters are found as straight boxes; the values tell."""
    tilted = rotated(FORM, 3)
    for label in range(0, 8, 2):
        middle = tilted[label].mean(axis=0)
        tilted[label] = middle + (FORM[label] - FORM[label].mean(axis=0))
    tilted[1] = tilted[1].mean(axis=0) + (FORM[1] - FORM[1].mean(axis=0))
    tilted[3] = tilted[3].mean(axis=0) + (FORM[3] - FORM[3].mean(axis=0))
    assert reading_order(tilted) == list(range(8))


def test_uneven_heights_do_not_part_a_row() -> None:
    """A small label beside a large value is read first although its top is lower."""
    assert reading_order(boxes((300, 100, 200, 60), (50, 118, 100, 24))) == [1, 0]


def test_two_boxes_follow_the_same_rule() -> None:
    """Two boxes whose heights differ by four pixels are one row."""
    assert reading_order(boxes((300, 100, 100, 30), (50, 104, 100, 30))) == [1, 0]


def test_columns_of_prose_are_read_as_rows() -> None:
    """The documented policy: boxes alone do not tell columns from forms."""
    left, right = [(50, y, 300, 30) for y in (100, 150)], [(500, y, 300, 30) for y in (100, 150)]
    assert reading_order(boxes(*left, *right)) == [0, 2, 1, 3]


def test_vertical_columns_are_read_from_right_to_left() -> None:
    """Columns of vertical text are boxes whose first edge points down."""
    columns = np.array([turned(box, 1) for box in boxes((100, 50, 40, 400), (200, 50, 40, 400), (300, 50, 40, 300))])
    assert reading_order(columns) == [2, 1, 0]


def test_equal_places_keep_their_order() -> None:
    """Ties are broken by the index."""
    assert reading_order(boxes((10, 10, 50, 20), (10, 10, 50, 20))) == [0, 1]


@given(st.lists(rectangles, max_size=30))
def test_every_line_is_read_once(lines: list[Rectangle]) -> None:
    """The order is a permutation, whatever overlaps."""
    assert sorted(reading_order(boxes(*lines))) == list(range(len(lines)))


@given(st.integers(1, 6), st.integers(1, 5), st.floats(-3, 3), st.randoms())
def test_a_grid_is_read_from_any_order_of_input(rows: int, columns: int, tilt: float, random: object) -> None:
    """The order of detection does not matter."""
    cells = [(40 + 240 * column, 40 + 80 * row, 200, 40) for row in range(rows) for column in range(columns)]
    upright = boxes(*cells)
    shuffled = list(range(len(cells)))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    order = reading_order(rotated(upright, tilt)[shuffled])
    assert [shuffled[index] for index in order] == list(range(len(cells)))
