"""The boxes of an AVIF file (ISO/IEC 14496-12 and 23008-12): its size."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice

from paddlewheel.inference import Buffer

_MAX_BOXES = 1024
_FULL_BOX_FIELDS = 4  # version and flags, before the content of `meta` and `ispe`


def size(data: Buffer) -> tuple[int, int]:
    """Return the largest size that a picture of the file claims (tiles and thumbnails are smaller than the whole)."""
    sizes = [(0, 0)]
    for meta, meta_end in _boxes(data, 0, len(data), b"meta"):
        for properties, properties_end in _boxes(data, meta + _FULL_BOX_FIELDS, meta_end, b"iprp"):
            for container, container_end in _boxes(data, properties, properties_end, b"ipco"):
                sizes += (
                    struct.unpack_from(">II", data, extent + _FULL_BOX_FIELDS)
                    for extent, _ in _boxes(data, container, container_end, b"ispe")
                )
    return max(sizes, key=lambda size: size[0] * size[1])


def _boxes(data: Buffer, start: int, end: int, kind: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of the content of each box called `kind` among the first between `start` and `end`."""
    for found, content, content_end in islice(_every_box(data, start, end), _MAX_BOXES):
        if found == kind:
            yield content, content_end


def _every_box(data: Buffer, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    at = start
    while at + 8 <= end:
        length, kind = struct.unpack_from(">I4s", data, at)
        header = 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, at + 8)
            header = 16
        box_end = at + length if length else end
        if box_end < at + header or box_end > end:
            return
        yield kind, at + header, box_end
        at = box_end
