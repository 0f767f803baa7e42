import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from paddlewheel.catalog import PACKS, Role, pull
from paddlewheel.engines import ModelFiles


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Return the folder of pulled packs; a pack that a test needs is pulled into it once."""
    return Path(os.environ.get("PADDLEWHEEL_MODELS_DIR") or Path(__file__).parents[2] / ".models")


def _files(models_dir: Path, pack: str, role: Role) -> ModelFiles:
    network = pull(PACKS[pack], models_dir).network(role)
    return ModelFiles(network.format, network.model, network.parameters)


@pytest.fixture(scope="session")
def paddle_files(models_dir: Path) -> ModelFiles:
    """Return a line recogniser as `.pdmodel`."""
    return _files(models_dir, "ppocrv4-mobile", "recognition")


@pytest.fixture(scope="session")
def pir_files(models_dir: Path) -> ModelFiles:
    """Return a line recogniser as PIR."""
    return _files(models_dir, "ppocrv5-mobile", "recognition")


@pytest.fixture(scope="session")
def onnx_files(models_dir: Path) -> ModelFiles:
    """Return a line recogniser as ONNX."""
    return _files(models_dir, "ppocrv6-tiny", "recognition")


@pytest.fixture(scope="session")
def onnx_classifier(models_dir: Path) -> ModelFiles:
    """Return the orientation classifier as ONNX."""
    return _files(models_dir, "ppocrv6-tiny", "orientation")


@pytest.fixture(scope="session")
def paddle_classifier(models_dir: Path) -> ModelFiles:
    """Return the same orientation classifier as `.pdmodel`."""
    return _files(models_dir, "ppocrv4-mobile", "orientation")


@pytest.fixture(scope="session")
def paddle_detector(models_dir: Path) -> ModelFiles:
    """Return a text detector as `.pdmodel`."""
    return _files(models_dir, "ppocrv4-mobile", "detection")


@pytest.fixture(scope="session")
def line() -> npt.NDArray[np.float32]:
    """Return two lines of pixels, normalised to -1..1."""
    return np.random.default_rng(7).uniform(-1, 1, (2, 3, 48, 320)).astype(np.float32)
