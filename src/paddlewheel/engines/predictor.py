"""The protocol between a pipeline and the library that runs a network.

An engine loads model files and returns a predictor; a predictor maps named arrays to named arrays. A predictor
belongs to one worker process and one thread: none of the libraries is safe to share (Paddle answers wrongly without
an error). It may hold the network compiled for several thread counts; the caller picks one for each run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy.typing as npt

from paddlewheel.errors import InvalidArgumentError
from paddlewheel.inference import TensorSpec

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

    def preload(self) -> None:
        """Import the library, so that processes forked from this one load networks at once."""
        ...

    def load(self, files: ModelFiles, options: LoadOptions) -> Predictor:
        """Load a network; raises :class:`~paddlewheel.errors.ModelLoadError` naming file and remedy."""
        ...


def gpu_id(device: str) -> int:
    """Return the number in ``gpu:<id>``."""
    return int(device.removeprefix("gpu:"))


def check_inputs(expected: tuple[TensorSpec, ...], inputs: Arrays) -> None:
    """Raise :class:`InvalidArgumentError` unless `inputs` are the `expected` ones, by name, dtype and shape.

    The libraries are less strict: OpenVINO computes with the previous run's array where one is missing, and casts
    silently.
    """
    names = {spec.name for spec in expected}
    if inputs.keys() != names:
        raise InvalidArgumentError(f"The network takes inputs {_listed(names)}; got {_listed(inputs)}.")
    for spec in expected:
        array = inputs[spec.name]
        fits = array.ndim == len(spec.shape) and all(
            wanted in (-1, given) for wanted, given in zip(spec.shape, array.shape, strict=True)
        )
        if not fits or array.dtype != spec.dtype:
            raise InvalidArgumentError(
                f"Input '{spec.name}' has shape {list(array.shape)} and dtype {array.dtype}; expected "
                f"{list(spec.shape)} (-1 is any size) and {spec.dtype}."
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names)) or "none"
