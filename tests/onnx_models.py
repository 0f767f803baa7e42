"""Writes small ONNX files, so that tests can have networks of their own: `y = x + value`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

_FLOAT = 1
_OPSET = 13


def write_adder(path: Path, value: float, *, columns: int | None = 2, rows: int | None = None) -> Path:
    """Write a network that adds `value` to its FP32 input `x` [rows, columns]; a side that is None is open."""
    shape = _message(*(_field(1, _side(side, name)) for side, name in ((rows, "rows"), (columns, "columns"))))
    tensor_type = _field(2, _field(1, _number(1, _FLOAT) + _field(2, shape)))
    constant = _number(2, _FLOAT) + _field(8, b"value") + _field(9, np.float32(value).tobytes())
    node = _field(1, b"x") + _field(1, b"value") + _field(2, b"y") + _field(4, b"Add")
    graph = _message(
        _field(1, node),
        _field(2, b"adder"),
        _field(5, constant),
        _field(11, _field(1, b"x") + tensor_type),
        _field(12, _field(1, b"y") + tensor_type),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_message(_number(1, 8), _field(7, graph), _field(8, _number(2, _OPSET))))
    return path


def _side(side: int | None, name: str) -> bytes:
    return _field(2, name.encode()) if side is None else _number(1, side)


def _message(*parts: bytes) -> bytes:
    return b"".join(parts)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
