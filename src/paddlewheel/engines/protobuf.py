"""A reader of protobuf's wire format, enough to look into model files without their libraries.

Source of the format: protobuf.dev, "Encoding". Values of length-delimited fields are views, nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT: Final = 10


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field of `message`; raises ValueError where it is cut off or no message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0 or kind not in (_VARINT, _FIXED64, _DELIMITED, _FIXED32):
            raise ValueError(f"no field starts at byte {at}")
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == _DELIMITED:
            size, at = _varint(message, at)
        else:
            size = _FIXED_SIZES[kind]
        if at + size > len(message):
            raise ValueError(f"it ends at byte {len(message)}, and should go on to byte {at + size}")
        yield number, message[at : at + size]
        at += size


def messages(message: memoryview, number: int) -> list[memoryview]:
    """Return the values of the length-delimited field `number`."""
    return [value for key, value in fields(message) if key == number and isinstance(value, memoryview)]


def integers(message: memoryview, number: int) -> list[int]:
    """Return the values of the integer field `number`, which are signed 64-bit numbers."""
    found = [value for key, value in fields(message) if key == number and isinstance(value, int)]
    return [value - (1 << 64) if value >> 63 else value for value in found]


def text(message: memoryview, number: int) -> str:
    """Return the string field `number`, empty where it is absent."""
    found = messages(message, number)
    return str(found[-1], "utf-8", "replace") if found else ""


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_VARINT):
        if at + index >= len(message):
            raise ValueError(f"it ends at byte {len(message)}, within a number")
        byte = message[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError(f"no number starts at byte {at}")
