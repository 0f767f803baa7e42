"""What a picture claims to be, from its header alone: the front process refuses by it, workers decode by it.

Owns the limit of pixels and the list of formats. Bytes come from a request; nothing is decoded, no picture library is
imported, and the cost does not grow with the file (well under a millisecond for a real one).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paddlewheel.errors import (
    InvalidArgumentError,
    PayloadTooLargeError,
    UndecodableError,
    UnsupportedFormatError,
)
from paddlewheel.inference import Buffer
from paddlewheel.pipelines.containers import avif, gif, jpeg, png, tiff
from paddlewheel.pipelines.containers.signature import ALLOWED, name_format


@dataclass(frozen=True, slots=True)
class PictureHeader:
    """The format, one of :data:`ALLOWED`, and the size in pixels as stored: an orientation is not applied yet."""

    format: str
    width: int
    height: int


def inspect(data: Buffer, max_pixels: int) -> PictureHeader:
    """Return what `data` claims to be.

    Raises :class:`~paddlewheel.errors.InvalidArgumentError` where it is empty, and its subclasses where it is of a
    kind that is not read here, claims more than `max_pixels` (width x height), or has a broken header.
    """
    if not len(data):
        raise InvalidArgumentError("The picture is empty: 0 bytes were received.")
    name = name_format(data)
    if name not in ALLOWED:
        raise UnsupportedFormatError(f"The picture is {name}; expected one of {', '.join(ALLOWED)}.")
    try:
        width, height = _SIZES[name](data)
    except (IndexError, struct.error) as error:
        raise UndecodableError(f"The {name} picture is truncated within its header.") from error
    if width <= 0 or height <= 0:
        raise UndecodableError(f"The {name} picture is broken: its header gives no size.")
    check_pixels(width, height, max_pixels)
    return PictureHeader(name, width, height)


def check_pixels(width: int, height: int, max_pixels: int) -> None:
    """Raise :class:`~paddlewheel.errors.PayloadTooLargeError` where the picture is over the limit."""
    if width * height > max_pixels:
        raise PayloadTooLargeError(
            f"The picture has {width}x{height} = {width * height} pixels; at most {max_pixels} are allowed "
            "(setting limits.max_pixels)."
        )


def _bmp_size(data: Buffer) -> tuple[int, int]:
    """Read BITMAPCOREHEADER or BITMAPINFOHEADER and its successors; a negative height means top to bottom."""
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    if header_bytes == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        return width, height
    width, height, _, _, compression = struct.unpack_from("<iiHHI", data, 18)
    if compression in (1, 2):
        raise UnsupportedFormatError("The picture is BMP with run-length compression; expected BMP without it.")
    return width, abs(height)


def _webp_size(data: Buffer) -> tuple[int, int]:
    """Read the canvas of an extended file, or the one frame of a simple one (RFC 9649)."""
    kind = bytes(data[12:16])
    if kind == b"VP8X":
        low_width, high_width, low_height, high_height = struct.unpack_from("<HBHB", data, 24)
        return 1 + low_width + (high_width << 16), 1 + low_height + (high_height << 16)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


_SIZES: Mapping[str, Callable[[Buffer], tuple[int, int]]] = {
    "JPEG": jpeg.size,
    "PNG": png.size,
    "GIF": gif.size,
    "BMP": _bmp_size,
    "WebP": _webp_size,
    "TIFF": tiff.size,
    "AVIF": avif.size,
}
