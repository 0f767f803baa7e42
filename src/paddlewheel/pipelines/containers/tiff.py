"""The directories of a TIFF file (TIFF 6.0, and BigTIFF with its 64-bit offsets): size and pages."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from paddlewheel.errors import UndecodableError
from paddlewheel.inference import Buffer

_MAX_ENTRIES = 4096
# A tile may stick out of a small picture; a decoder holds a whole one.
_MAX_LONE_TILE_PIXELS = 4_000_000

_SUBFILE_TYPE, _WIDTH, _HEIGHT, _TILE_WIDTH, _TILE_HEIGHT = 254, 256, 257, 322, 323
_NOT_A_PAGE = 0b101  # bits of the subfile type: a smaller copy of another page; a transparency mask
_VALUE_CODES = {1: "B", 3: "H", 4: "I", 16: "Q"}


@dataclass(frozen=True, slots=True)
class _Layout:
    """Byte order, and the struct codes of the fields that BigTIFF widened."""

    order: str
    count_code: str
    entry: struct.Struct
    offset_code: str
    first_at: int


def size(data: Buffer) -> tuple[int, int]:
    """Return width and height of the first page as stored (before the orientation)."""
    for page in _directories(data):
        width, height = page.get(_WIDTH, 0), page.get(_HEIGHT, 0)
        tile_width, tile_height = page.get(_TILE_WIDTH, 0), page.get(_TILE_HEIGHT, 0)
        if tile_width * tile_height > max(width * height, _MAX_LONE_TILE_PIXELS):
            raise UndecodableError(
                f"The TIFF picture of {width}x{height} pixels claims tiles of {tile_width}x{tile_height}."
            )
        return width, height
    return 0, 0


def count_pages(data: Buffer, at_most: int) -> int:
    """Return the number of pages, up to `at_most`; thumbnails, masks and what lies behind a fault do not count."""
    count = 0
    try:
        for page in islice(_directories(data), at_most):
            count += not page.get(_SUBFILE_TYPE, 0) & _NOT_A_PAGE
    except (IndexError, struct.error, UndecodableError):
        pass
    return max(count, 1)


def _directories(data: Buffer) -> Iterator[dict[int, int]]:
    """Yield each directory as tag to value, for tags that hold one unsigned number."""
    layout = _layout(data)
    (at,) = struct.unpack_from(layout.offset_code, data, layout.first_at)
    seen: set[int] = set()
    while at and at not in seen:
        seen.add(at)
        (entries,) = struct.unpack_from(layout.count_code, data, at)
        if entries > _MAX_ENTRIES:
            raise UndecodableError(f"The TIFF picture claims {entries} tags in a directory; at most {_MAX_ENTRIES}.")
        start = at + struct.calcsize(layout.count_code)
        end = start + entries * layout.entry.size
        yield _values(data, layout, start, end)
        (at,) = struct.unpack_from(layout.offset_code, data, end)


def _layout(data: Buffer) -> _Layout:
    order = "<" if data[0] == ord("I") else ">"
    if ord("+") in (data[2], data[3]):
        return _Layout(order, order + "Q", struct.Struct(order + "HHQ8s"), order + "Q", 8)
    return _Layout(order, order + "H", struct.Struct(order + "HHI4s"), order + "I", 4)


def _values(data: Buffer, layout: _Layout, start: int, end: int) -> dict[int, int]:
    values = {}
    for at in range(start, end, layout.entry.size):
        tag, kind, count, raw = layout.entry.unpack_from(data, at)
        code = _VALUE_CODES.get(kind)
        if count == 1 and code and struct.calcsize(code) <= len(raw):
            (values[tag],) = struct.unpack_from(layout.order + code, raw)
    return values
