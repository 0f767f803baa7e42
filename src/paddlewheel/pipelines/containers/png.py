"""The chunks of a PNG file (W3C PNG, third edition): size, frames, and a copy without what pixels do not need."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from paddlewheel.errors import UndecodableError
from paddlewheel.inference import Buffer

_PIXELS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"}


@dataclass(frozen=True, slots=True)
class PlainPng:
    """The still picture of a PNG file without metadata (but its EXIF), and the number of animation frames."""

    data: bytes
    frames: int


def size(data: Buffer) -> tuple[int, int]:
    """Return width and height as stored (before the EXIF orientation)."""
    kind, width, height = struct.unpack_from(">4sII", data, 12)
    if kind != b"IHDR":
        raise UndecodableError("The PNG picture does not begin with an IHDR chunk.")
    return width, height


def plain(data: bytes) -> PlainPng:
    """Return the picture alone: no ICC profile, text or animation frame reaches the decoder.

    Raises :class:`~paddlewheel.errors.UndecodableError` where the chunks do not lead to IEND: the file was cut off.
    """
    kept, frames, at, kind = [data[:8]], 1, 8, b""
    while kind != b"IEND":
        if at + 12 > len(data):
            raise UndecodableError("The PNG picture is truncated: its IEND chunk is missing.")
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > len(data):
            raise UndecodableError("The PNG picture is truncated: a chunk runs past the end of the file.")
        if _is_needed(data, kind, at, end):
            kept.append(data[at:end])
        elif kind == b"acTL" and length >= 4:
            (frames,) = struct.unpack_from(">I", data, at + 8)
        at = end
    return PlainPng(b"".join(kept), max(frames, 1))


def _is_needed(data: bytes, kind: bytes, at: int, end: int) -> bool:
    if kind == b"IHDR":
        return at == 8
    if kind == b"eXIf":  # a damaged one must not fail the picture
        return data[end - 4 : end] == struct.pack(">I", zlib.crc32(data[at + 4 : end - 4]))
    return kind in _PIXELS
