from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.catalog import PACKS, pull, read_dictionary
from paddlewheel.engines import LoadOptions, ModelFiles, load
from paddlewheel.errors import ModelLoadError
from paddlewheel.pipelines.ocr.buckets import LINE_HEIGHT, line_width
from paddlewheel.pipelines.ocr.pipeline import OcrPipeline
from paddlewheel.pipelines.ocr.recognition import TextRecogniser, batches, stacked


@pytest.mark.parametrize("surplus", [2, -1, -200])
def test_a_dictionary_of_another_network_is_refused(models_dir: Path, surplus: int) -> None:
    """Characters plus blank (plus space) must be as many as the network tells apart."""
    installed = pull(PACKS["ppocrv6-tiny"], models_dir)
    network = installed.network("recognition")
    predictor = load(ModelFiles(network.format, network.model), "openvino", LoadOptions())
    characters = read_dictionary(installed.dictionary)
    wrong = (*characters, *"xy") if surplus > 0 else characters[:surplus]
    with pytest.raises(ModelLoadError, match=r"dictionary has \d+ characters.* 6906 classes"):
        TextRecogniser(predictor, wrong)


def test_repeats_are_one_character_and_blanks_part_them(tiny: OcrPipeline) -> None:
    """The best path of CTC, with the mean probability of the characters alone."""
    recogniser = tiny._recognition
    path = [0, 5, 5, 0, 5, 7, 7, 0]
    certainty = [0.9, 0.8, 0.1, 0.9, 0.6, 0.4, 0.1, 0.9]
    probabilities = np.zeros((2, len(path), len(recogniser._characters)), np.float32)
    probabilities[0, range(len(path)), path] = certainty
    probabilities[1, :, 0] = 1
    full, empty = recogniser._decoded(probabilities)
    five, seven = recogniser._characters[5], recogniser._characters[7]
    assert full.text == five + five + seven
    assert full.score == pytest.approx((0.8 + 0.6 + 0.4) / 3)
    assert (empty.text, empty.score) == ("", 0.0)


@given(st.lists(st.integers(1, 9000), max_size=60), st.sampled_from([1280, 10_240]))
def test_batches_hold_each_line_once_by_bucket(widths: list[int], limit: int) -> None:
    """Lines of a batch share a bucket; a batch of several is no wider than the limit in all, and 4 or 16 or so long."""
    found = list(batches(widths, limit))
    assert sorted(index for batch in found for index in batch) == list(range(len(widths)))
    for batch in found:
        (bucket,) = {line_width(widths[index]) for index in batch}
        assert len(batch) == 1 or len(batch) * bucket <= limit
        assert len(batch) in {1, 4, 16, 64}


def test_pixels_become_values_from_minus_one_to_one_and_the_rest_is_nought() -> None:
    """Free space is grey, as in training."""
    lines = [np.full((LINE_HEIGHT, 100, 3), value, np.uint8) for value in (0, 255)]
    planes = stacked(lines, 160)
    assert planes.shape == (2, 3, LINE_HEIGHT, 160)
    assert np.allclose(planes[0, :, :, :100], -1)
    assert np.allclose(planes[1, :, :, :100], 1)
    assert not planes[:, :, :, 100:].any()
