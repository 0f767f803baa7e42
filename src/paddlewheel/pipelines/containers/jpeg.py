"""The segments of a JPEG file (ITU-T T.81, annex B): its size, and a copy without what pixels do not need."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from paddlewheel.errors import UndecodableError
from paddlewheel.inference import Buffer

_MAX_STEPS = 10_000
_MAX_SCANS = 100

_EOI = 0xD9
_SOS = 0xDA
_EXIF = 0xE1
# Bytes after 0xFF that start no segment: stuffing, TEM, RSTn, SOI and fill bytes.
_NO_SEGMENT = {0x00, 0x01, *range(0xD0, 0xD9), 0xFF}
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
# JFIF (APP0) and Adobe (APP14) say how colours are stored; other application segments and comments say nothing of it.
_METADATA = {*range(0xE1, 0xEE), 0xEF, 0xFE}
# Within entropy-coded data 0xFF is followed by stuffing or a restart marker.
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7]")


@dataclass(frozen=True, slots=True)
class Segment:
    """A marker and the place of its payload."""

    marker: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PlainJpeg:
    """A picture without metadata but its EXIF.

    `is_sound` says that it is one scan which no marker but the end interrupts, so that whatever else is wrong with it
    shows as wrong pixels and never as missing ones.
    """

    data: bytes
    is_sound: bool


def size(data: Buffer) -> tuple[int, int]:
    """Return width and height as stored (before the EXIF orientation)."""
    for segment in _segments(data):
        if segment.marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, segment.start + 1)
            return width, height
    raise UndecodableError("The JPEG picture has no frame header.")


def plain(data: bytes) -> PlainJpeg:
    """Return the first picture alone: no ICC profile, XMP or trailing data reaches the decoder.

    Raises :class:`~paddlewheel.errors.UndecodableError` where no end marker follows the header: entropy-coded data
    never holds one, so the file was cut off.
    """
    kept, scan, scan_end = [b"\xff\xd8"], 0, 0
    for segment in _segments(data):
        scan, scan_end = segment.start - 4, segment.end
        is_exif = segment.marker == _EXIF and data.startswith(b"Exif\0\0", segment.start)
        if segment.marker != _SOS and (is_exif or segment.marker not in _METADATA):
            kept.append(data[scan : segment.end])
    marker = _MARKER.search(data, scan_end)
    is_sound = marker is not None and marker[0] == b"\xff\xd9"
    end = data.find(b"\xff\xd9", marker.start() if marker else scan_end)
    if end < 0:
        raise UndecodableError("The JPEG picture is truncated: its end marker is missing.")
    if not is_sound and data.count(b"\xff\xda", scan, end) > _MAX_SCANS:  # each may cost a pass over all pixels
        raise UndecodableError(f"The JPEG picture has more than {_MAX_SCANS} scans.")
    kept.append(data[scan : end + 2])
    return PlainJpeg(b"".join(kept), is_sound)


def _segments(data: Buffer) -> Iterator[Segment]:
    """Yield the segments up to the first scan, that one included; stray bytes between them are skipped."""
    at = 2
    for _ in range(_MAX_STEPS):
        marker = data[at + 1]
        if data[at] != 0xFF or marker in _NO_SEGMENT:
            at += 1
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if marker == _EOI or length < 2:
            break
        yield Segment(marker, at + 4, at + 2 + length)
        if marker == _SOS:
            return
        at += 2 + length
    raise UndecodableError("The JPEG picture is broken: its header does not lead to a scan.")
