import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddlewheel.catalog import PACKS, pull
from paddlewheel.engines import LoadOptions
from paddlewheel.inference import Answer, Tensor
from paddlewheel.pipelines.ocr.loading import load_ocr
from paddlewheel.pipelines.ocr.pipeline import OcrPipeline
from paddlewheel.pipelines.pipeline import Item

SAMPLES = Path(__file__).parents[2] / "samples"

Picture = Callable[..., Item]
Read = Callable[..., Answer]


def _load(pack: str, models_dir: Path) -> OcrPipeline:
    options = LoadOptions(threads=(1,), precision="fp32")
    return load_ocr(pull(PACKS[pack], models_dir), "openvino", options, defaults={}, max_pixels=60_000_000)


@pytest.fixture(scope="session")
def tiny(models_dir: Path) -> OcrPipeline:
    """Return the pipeline with the smallest networks."""
    return _load("ppocrv6-tiny", models_dir)


@pytest.fixture(scope="session")
def small(models_dir: Path) -> OcrPipeline:
    """Return the pipeline with the default networks."""
    return _load("ppocrv6-small", models_dir)


@pytest.fixture(scope="session")
def truth() -> dict[str, list[str]]:
    """Return the lines of each sample, without spaces, in reading order."""
    lines: dict[str, list[str]] = json.loads((SAMPLES / "truth.json").read_text("utf-8"))
    return lines


@pytest.fixture(scope="session")
def picture() -> Picture:
    """Return a function that makes an item of a sample's name or of encoded bytes, with the parameters of a call."""

    def item(source: str | bytes, **parameters: Any) -> Item:
        data = (SAMPLES / source).read_bytes() if isinstance(source, str) else source
        return Item("test", (Tensor.from_elements("image", [data]),), parameters)

    return item


@pytest.fixture(scope="session")
def read(picture: Picture) -> Read:
    """Return a function that runs one picture through a pipeline and returns its answer."""

    def answer(pipeline: OcrPipeline, source: str | bytes, **parameters: Any) -> Answer:
        (outcome,) = pipeline.run([picture(source, **parameters)])
        assert isinstance(outcome, Answer), outcome
        return outcome

    return answer
