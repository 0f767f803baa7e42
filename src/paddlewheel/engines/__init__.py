"""Predictors: one protocol over Paddle Inference, OpenVINO, ONNX Runtime and an echo for tests.

Owns the choice of an engine and the loading of a network; what an engine can do is the engine's module to say.
Importing this package imports none of the libraries: an engine imports its own when it loads, or in :func:`preload`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from paddlewheel.engines import echo, onnxruntime, openvino, paddle
from paddlewheel.engines.model_files import check_files
from paddlewheel.engines.predictor import Engine, Format, LoadOptions, ModelFiles, Predictor
from paddlewheel.errors import ModelLoadError

__all__ = ["Choice", "Format", "LoadOptions", "ModelFiles", "Predictor", "choose", "load", "preload"]

# Fastest first; `auto` takes the first that reads the format and has the device. The echo comes only when asked for.
_BY_SPEED: Final[tuple[Engine, ...]] = (openvino, paddle, onnxruntime)
_ENGINES: Final[Mapping[str, Engine]] = {engine.name: engine for engine in (*_BY_SPEED, echo)}


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine that will load a model, and why, as one sentence."""

    name: str
    reason: str


def choose(format: Format, device: str = "cpu", engine: str = "auto") -> Choice:  # noqa: A002  # the settings' word
    """Return the engine for models of `format` on `device`; raises :class:`ModelLoadError` naming the remedy."""
    if engine != "auto":
        obstacle = _obstacle(_engine(engine), format, device)
        if obstacle is not None:
            raise ModelLoadError(f"Engine '{engine}' cannot be used: {obstacle}.")
        return Choice(engine, "The settings ask for it.")
    passed_over: list[str] = []
    for candidate in _BY_SPEED:
        obstacle = _obstacle(candidate, format, device)
        if obstacle is None:
            why = f"It is the fastest engine for {format} models on {device}"
            return Choice(candidate.name, f"{why}{_passed_over(passed_over)}.")
        passed_over.append(obstacle)
    raise ModelLoadError(f"No engine can load {format} models on {device}: {'; '.join(passed_over)}.")


def load(files: ModelFiles, engine: str, options: LoadOptions) -> Predictor:
    """Load a network with the named engine (see :func:`choose`); raises :class:`ModelLoadError`."""
    chosen = _engine(engine)
    obstacle = _obstacle(chosen, files.format, options.device)
    if obstacle is not None:
        raise ModelLoadError(f"Engine '{engine}' cannot load '{files.model}': {obstacle}.")
    check_files(files)
    return chosen.load(files, options)


def preload(names: Iterable[str]) -> None:
    """Import the libraries of the named engines, so that processes forked from this one load networks at once."""
    for name in names:
        _engine(name).preload()


def _engine(name: str) -> Engine:
    if name not in _ENGINES:
        raise ModelLoadError(f"There is no engine '{name}'; expected one of: auto, {', '.join(_ENGINES)}.")
    return _ENGINES[name]


def _obstacle(engine: Engine, format: Format, device: str) -> str | None:  # noqa: A002  # likewise
    if format not in engine.formats:
        return f"{engine.name} does not read {format} models"
    return engine.missing(device)


def _passed_over(obstacles: list[str]) -> str:
    return f" ({'; '.join(obstacles)})" if obstacles else ""
