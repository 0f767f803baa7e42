"""The protocol between a pipeline and the library that runs a network.

An engine loads model files and returns a predictor; a predictor maps named arrays to named arrays. A predictor
belongs to one worker process and one thread: none of the libraries is safe to share (Paddle answers wrongly without
an error). It may hold the network compiled for several thread counts; the caller picks one for each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy.typing as npt

Format = Literal["onnx", "paddle", "pir", "none"]
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one network; `parameters` is None where the format keeps them inside `model`.

    Formats: `onnx` (``.onnx``), `paddle` (``.pdmodel`` + ``.pdiparams``), `pir` (``.json`` + ``.pdiparams``), and
    `none` for the echo engine, which reads no files.
    """

    format: Format
    model: Path
    parameters: Path | None = None


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to load a network.

    `device` is ``cpu`` or ``gpu:<id>``; `precision` one of auto, fp32, bf16, fp16, int8; `threads` the thread counts
    that :meth:`Predictor.run` will be asked for, the usual one first; `options` are the engine's own settings.
    """

    device: str = "cpu"
    precision: str = "auto"
    threads: tuple[int, ...] = (1,)
    options: Mapping[str, Any] = field(default_factory=dict)
    logs: bool = False


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, datatype (of the Open Inference Protocol) and shape of an input or output; -1 is any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class Predictor(Protocol):
    """A loaded network."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What :meth:`run` takes."""
        ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What :meth:`run` returns."""
        ...

    @property
    def device(self) -> str:
        """Where it really runs, asked of the library after loading."""
        ...

    @property
    def precision(self) -> str:
        """What it really computes in."""
        ...

    def run(self, inputs: Arrays, threads: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs for `inputs`, computed with `threads` (one of those loaded; None is the usual).

        The returned arrays are the caller's: a later run does not change them.
        """
        ...


class Engine(Protocol):
    """A library that runs networks."""

    name: str
    formats: frozenset[Format]

    def missing(self, device: str) -> str | None:
        """Return None if the library is installed and has `device`, else what is missing and how to get it."""
        ...

    def load(self, files: ModelFiles, options: LoadOptions) -> Predictor:
        """Load a network; raises :class:`~paddlewheel.errors.ModelLoadError` naming file and remedy."""
        ...
