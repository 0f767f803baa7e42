"""The blocks of a GIF file (GIF89a specification): its size and its frames."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice

from paddlewheel.inference import Buffer

# What precedes the first frame in a real file is a colour table and perhaps a comment or XMP.
_HEAD = 1 << 18
_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B


def size(data: Buffer) -> tuple[int, int]:
    """Return the size of the screen, widened to hold the first frame where that one reaches beyond it."""
    width, height = struct.unpack_from("<HH", data, 6)
    for left, top, frame_width, frame_height in _frames(memoryview(data)[:_HEAD]):
        return max(width, left + frame_width), max(height, top + frame_height)
    return 0, 0


def count_frames(data: Buffer, at_most: int) -> int:
    """Return the number of frames, up to `at_most`; frames that are cut off after the first do not count."""
    count = 0
    try:
        for _ in islice(_frames(data), at_most):
            count += 1
    except (IndexError, struct.error):
        pass
    return max(count, 1)


def _frames(data: Buffer) -> Iterator[tuple[int, int, int, int]]:
    """Yield left, top, width and height of each frame."""
    at = 13 + _table_bytes(data[10])
    while data[at] != _TRAILER:
        if data[at] == _EXTENSION:
            at = _after_sub_blocks(data, at + 2)
        elif data[at] == _IMAGE:
            yield struct.unpack_from("<HHHH", data, at + 1)
            at = _after_sub_blocks(data, at + 11 + _table_bytes(data[at + 9]))
        else:
            at += 1


def _table_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_sub_blocks(data: Buffer, at: int) -> int:
    while data[at]:
        at += 1 + data[at]
    return at + 1
