"""What tests of workers need: a fork server, specs of echo models, and counts of what may leak."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddlewheel.inference import InferenceRequest, Tensor
from paddlewheel.pipelines import ModelSpec

MakeSpec = Callable[..., ModelSpec]
ECHO = "echo/1/0"
"""The key of the model called `echo`."""


@pytest.fixture
def spec(forked: None) -> MakeSpec:  # noqa: ARG001  # workers are forked from it
    """Return a function that describes an echo model with options."""

    def make(name: str = "echo", **options: Any) -> ModelSpec:
        return ModelSpec(name, "1", "tensor", "echo", engine_options=options)

    return make


def request(*values: float, name: str = "request") -> InferenceRequest:
    """Return a request with one row of `values`."""
    tensor = Tensor.from_numpy("input", np.array([values], np.float32))
    return InferenceRequest(name, "echo", (tensor,))


def open_descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def mapped_arenas() -> int:
    """Return how many arenas are mapped into this process."""
    return Path("/proc/self/maps").read_text().count("/memfd:paddlewheel")
