"""Paddle's own files: what a program takes, returns and needs, and what a parameter file holds.

Programs are a protobuf message (``.pdmodel``, `framework.proto` in Paddle's repository) or JSON (``.json``, PIR, whose
inputs, outputs and parameters are the operations `data`, `fetch` and `p`). A parameter file is, for both, a row of
dense tensors: a version, an empty list of levels, a version, a length and a description of that length (datatype and
dimensions), then the values. Only descriptions are read. ValueError says in what a file is not as it should be.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from paddlewheel.engines import protobuf
from paddlewheel.engines.predictor import ModelFiles
from paddlewheel.inference import TensorSpec

# VarType.Type of framework.proto; bf16 has no datatype in the Open Inference Protocol.
_DATATYPES: Final = {
    0: "BOOL", 1: "INT16", 2: "INT32", 3: "INT64", 4: "FP16", 5: "FP32", 6: "FP64", 20: "UINT8", 21: "INT8", 22: "BF16"
}  # fmt: skip
_ITEM_SIZES: Final = {0: 1, 1: 2, 2: 4, 3: 8, 4: 2, 5: 4, 6: 8, 20: 1, 21: 1, 22: 2, 23: 8, 24: 16}
_PIR_DATATYPES: Final = {"bool": "BOOL", "bf16": "BF16", "f16": "FP16", "f32": "FP32", "f64": "FP64"} | {
    f"{short}{bits}": f"{long}{bits}" for short, long in (("i", "INT"), ("ui", "UINT")) for bits in (8, 16, 32, 64)
}

Shapes = Counter[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Program:
    """What a program says of itself; `parameters` counts the shapes that its parameter file must hold."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: Shapes


def read_program(files: ModelFiles) -> Program:
    """Return the program in `files.model`; raises ValueError."""
    content = files.model.read_bytes()
    return _pir(content) if files.format == "pir" else _pdmodel(memoryview(content))


def parameter_shapes(path: Path) -> Shapes:
    """Return the shapes of the tensors in a parameter file; raises ValueError where it is cut off or something else."""
    shapes: Shapes = Counter()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = 0
        while at < len(content):
            shape, at = _tensor(content, at)
            shapes[shape] += 1
        if at != len(content):
            raise ValueError(f"it ends at byte {len(content)}, and should go on to byte {at}")
    return shapes


def _tensor(content: mmap.mmap, at: int) -> tuple[tuple[int, ...], int]:
    """Return the shape of the tensor at byte `at`, and the byte after its values."""
    header = struct.Struct("<IQIi")
    if at + header.size > len(content):
        raise ValueError(f"it ends at byte {len(content)}, within a tensor's description")
    version, levels, tensor_version, size = header.unpack_from(content, at)
    if (version, levels, tensor_version) != (0, 0, 0) or not 0 < size < 4096:
        raise ValueError(f"no tensor starts at byte {at}")
    at += header.size
    if at + size > len(content):
        raise ValueError(f"it ends at byte {len(content)}, within a tensor's description")
    description = memoryview(content[at : at + size])
    kind, shape = protobuf.integers(description, 1), tuple(protobuf.integers(description, 2))
    if len(kind) != 1 or kind[0] not in _ITEM_SIZES or any(side < 0 for side in shape):
        raise ValueError(f"no tensor's description starts at byte {at}")
    return shape, at + size + math.prod(shape) * _ITEM_SIZES[kind[0]]


def _pir(content: bytes) -> Program:
    try:
        document = msgspec.json.decode(content)
        if document["base_code"]["magic"] != "pir":
            raise ValueError("it is JSON, but not a PIR program")
        operations = document["program"]["regions"][0]["blocks"][0]["ops"]
        return Program(
            inputs=tuple(_pir_spec(each) for each in operations if each["#"].endswith(".data")),
            outputs=tuple(_pir_spec(each) for each in operations if each["#"].endswith(".fetch")),
            parameters=Counter(
                tuple(_pir_type(operation["O"])[1]) for operation in operations if operation["#"] == "p"
            ),
        )
    except (KeyError, IndexError, TypeError, StopIteration) as error:
        raise ValueError("it is JSON, but not a PIR program") from error


def _pir_spec(operation: dict[str, Any]) -> TensorSpec:
    label = next(entry["AT"]["D"] for entry in operation["A"] if entry["N"] == "name")
    datatype, shape = _pir_type(operation["O"][0])
    return TensorSpec(label, _PIR_DATATYPES.get(datatype, datatype.upper()), tuple(shape))


def _pir_type(result: dict[str, Any]) -> tuple[str, list[int]]:
    element, shape = result["TT"]["D"][:2]
    return element["#"].rpartition("_")[2], shape


def _pdmodel(content: memoryview) -> Program:
    blocks = protobuf.messages(content, 1)
    if not blocks:
        raise ValueError("it holds no program")
    variables = protobuf.messages(blocks[0], 3)
    operations = protobuf.messages(blocks[0], 4)
    specs = {spec.name: spec for variable in variables if (spec := _pdmodel_spec(variable)) is not None}
    kept = [protobuf.text(variable, 1) for variable in variables if 1 in protobuf.integers(variable, 3)]
    try:
        return Program(
            inputs=tuple(specs[_argument(each, 2)] for each in operations if protobuf.text(each, 3) == "feed"),
            outputs=tuple(specs[_argument(each, 1)] for each in operations if protobuf.text(each, 3) == "fetch"),
            parameters=Counter(specs[label].shape for label in kept if label in specs),
        )
    except (KeyError, IndexError) as error:
        raise ValueError("it holds no whole program") from error


def _pdmodel_spec(variable: memoryview) -> TensorSpec | None:
    """Return a variable that is a dense tensor; others (the lists that feed and fetch) have no description of one."""
    for kind in protobuf.messages(variable, 2):
        for dense in protobuf.messages(kind, 3):
            for tensor in protobuf.messages(dense, 1):
                datatype = _DATATYPES.get(protobuf.integers(tensor, 1)[0], "unknown")
                return TensorSpec(protobuf.text(variable, 1), datatype, tuple(protobuf.integers(tensor, 2)))
    return None


def _argument(operation: memoryview, number: int) -> str:
    """Return the first argument of an operation's inputs (`number` 1) or outputs (2)."""
    return protobuf.text(protobuf.messages(operation, number)[0], 2)
