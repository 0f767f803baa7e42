import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.catalog import PACKS
from paddlewheel.pipelines.ocr.detection import read_map, scales

SETTINGS = PACKS["ppocrv6-small"].detection


def drawn(*regions: tuple[int, int, int, int], value: float = 0.9) -> npt.NDArray[np.float32]:
    """Return a map with regions of (left, top, width, height)."""
    probability = np.zeros((200, 300), np.float32)
    for left, top, width, height in regions:
        probability[top : top + height, left : left + width] = value
    return probability


def test_a_region_grows_by_the_published_distance() -> None:
    """Each side moves out by area x ratio / perimeter, measured between the centres of the outer pixels."""
    (region,) = read_map(drawn((50, 60, 101, 21)), SETTINGS)
    width, height = 101, 21  # the kernel of the dilation adds a pixel
    grown = SETTINGS.unclip_ratio * width * height / (2 * (width + height))
    assert region.box.min(axis=0) == pytest.approx([49 - grown, 59 - grown], abs=1.01)
    assert region.box.max(axis=0) == pytest.approx([150 + grown, 80 + grown], abs=1.01)
    assert region.height == pytest.approx(height + 2 * grown, abs=0.01)
    assert region.score == pytest.approx(0.9, abs=0.1)


@pytest.mark.parametrize(
    "probability",
    [drawn(), drawn((50, 60, 2, 1)), drawn((50, 60, 100, 20), value=0.2), drawn((50, 60, 100, 20), value=0.4)],
    ids=["empty", "speck", "under the threshold", "under the threshold of boxes"],
)
def test_weak_and_tiny_regions_are_no_text(probability: npt.NDArray[np.float32]) -> None:
    """Only regions that are large and certain enough become boxes."""
    assert list(read_map(probability, SETTINGS)) == []


def test_a_hole_is_no_region_but_text_within_it_is() -> None:
    """A frame gives one box, text inside the frame another."""
    probability = drawn((20, 20, 260, 160))
    probability[30:170, 30:270] = 0
    probability[90:110, 100:200] = 0.9
    boxes = [region.box for region in read_map(probability, SETTINGS)]
    assert sum(box[:, 0].max() - box[:, 0].min() < 200 for box in boxes) == 1
    assert len(boxes) <= 2


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_each_search_is_larger_and_memory_is_bounded(width: int, height: int) -> None:
    """Passes grow, end at twice the picture's size or 4.2 megapixels, and never start above the picture's own size."""
    passes = list(scales(width, height))
    assert passes == sorted(set(passes))
    assert passes[0] <= 1
    assert passes[-1] <= 2
    assert width * height * passes[-1] ** 2 <= 4_200_001
    assert len(passes) <= 4


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(64, 4096))
def test_a_side_limit_means_one_search_within_it(width: int, height: int, side: int) -> None:
    """The caller's limit is kept, and a picture is not enlarged to it."""
    (scale,) = scales(width, height, side)
    assert scale <= 1
    assert math.floor(max(width, height) * scale) <= side
