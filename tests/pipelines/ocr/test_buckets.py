from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.pipelines.ocr.buckets import LINE_WIDTHS, detection_side, line_width


@given(st.floats(LINE_WIDTHS[0], LINE_WIDTHS[-1]))
def test_a_line_is_stretched_by_no_more_than_a_fourteenth(width: float) -> None:
    """Between the least and the greatest bucket, a line nearly keeps its proportions."""
    assert 13 / 14 <= line_width(width) / width <= 14 / 13


@given(st.floats(0, 1e9))
def test_every_width_has_a_bucket_of_the_fixed_set(width: float) -> None:
    """However odd the widths, the network sees few."""
    assert line_width(width) in LINE_WIDTHS


@given(st.sampled_from(LINE_WIDTHS))
def test_a_bucket_is_its_own_bucket(width: int) -> None:
    """A crop that was cut for a bucket is read in that bucket."""
    assert line_width(width) == width


@given(st.floats(0, 100_000))
def test_detection_sides_suit_the_network(length: float) -> None:
    """A side is a positive multiple of 32 and, from 256 pixels on, within 7 % of the length."""
    side = detection_side(length)
    assert side >= 32
    assert side % 32 == 0
    if length >= 256:
        assert abs(side / length - 1) <= 0.07


def test_pictures_share_few_detection_sides() -> None:
    """All lengths up to 4096 come down to 48 sides."""
    assert len({detection_side(length) for length in range(1, 4097)}) == 48
