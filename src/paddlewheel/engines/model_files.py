"""What can be said of model files before a library reads them.

Damaged files make some libraries end the process or compute nonsense, so what is cheap to see is seen here: files
exist, are whole, are what their format says, and belong together. Weights are not read, so a flipped bit in one passes.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from paddlewheel.engines import protobuf
from paddlewheel.engines.paddle_files import parameter_shapes, read_program
from paddlewheel.engines.predictor import Format, ModelFiles
from paddlewheel.errors import ModelLoadError

_ONNX_GRAPH: Final = 7
"""Number of the field `graph` in ONNX's ModelProto."""
_REMEDY: Final = "pull or copy the model again"


def check_files(files: ModelFiles) -> None:
    """Raise :class:`ModelLoadError` that names the file and the remedy if `files` are plainly not usable."""
    _CHECKS[files.format](files)


def _check_onnx(files: ModelFiles) -> None:
    _check_present(files.model)
    with files.model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        fault = _onnx_fault(content)
    if fault is not None:
        raise _damaged(files.model, "an ONNX model", fault)


def _onnx_fault(content: mmap.mmap) -> str | None:
    """Return what is wrong with a model's outer message; as text, for an error would keep the mapping alive."""
    with memoryview(content) as view:
        try:
            graphs = sum(number == _ONNX_GRAPH for number, _ in protobuf.fields(view))
        except ValueError as error:
            return str(error)
    return None if graphs else "it holds no graph"


def _check_paddle(files: ModelFiles) -> None:
    _check_present(files.model)
    if files.parameters is None:
        raise ModelLoadError(f"Model '{files.model}' has no parameter file (.pdiparams); {_REMEDY}.")
    _check_present(files.parameters)
    try:
        program = read_program(files)
    except ValueError as error:
        raise _damaged(files.model, "a Paddle program", str(error)) from error
    try:
        held = parameter_shapes(files.parameters)
    except ValueError as error:
        raise _damaged(files.parameters, "Paddle parameters", str(error)) from error
    if held != program.parameters:
        raise ModelLoadError(
            f"Parameter file '{files.parameters}' belongs to another model than '{files.model}': it holds "
            f"{held.total()} tensors, {(held & program.parameters).total()} of the {program.parameters.total()} that "
            f"the model needs; {_REMEDY}."
        )


def _check_nothing(_: ModelFiles) -> None:
    """Accept anything: the echo reads no files."""


_CHECKS: Final[Mapping[Format, Callable[[ModelFiles], None]]] = {
    "onnx": _check_onnx,
    "paddle": _check_paddle,
    "pir": _check_paddle,
    "none": _check_nothing,
}


def _check_present(path: Path) -> None:
    if not path.is_file():
        raise ModelLoadError(f"Model file '{path}' does not exist; {_REMEDY}.")
    if path.stat().st_size == 0:
        raise ModelLoadError(f"Model file '{path}' is empty; {_REMEDY}.")


def _damaged(path: Path, expected: str, why: str) -> ModelLoadError:
    return ModelLoadError(f"Model file '{path}' is damaged or not {expected}: {why}; {_REMEDY}.")
