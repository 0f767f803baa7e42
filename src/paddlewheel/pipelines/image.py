"""Bytes to pixels: the one way from an encoded picture to what the networks see. Runs in worker processes.

    bytes ─ inspect ─ prepare ──── Pillow plugin ─┬─ strips to BGR ─┬─ upright ─ DecodedPicture
            limits    no metadata  header, EXIF   └─ OpenCV (JPEG) ─┘

What a picture means here, whatever its format:

- Pixels are as a person sees them: the EXIF orientation is applied, transparency lies on white paper.
- Of several pages or frames the first is read, and a warning tells how many there are.
- Deep pixels (16 or 32 bits, floating point) are scaled so that the bits in use fill the range: the largest value
  decides how many (1020 means 10 bits, so 1023 becomes white), and never less than 8 for single-channel integers.
  Nothing is subtracted, so a blank page stays blank. Floating point up to 1.0 takes 1.0 for white.
- Colour profiles are ignored, damaged metadata does no harm, and data after the picture's end is not looked at.
- Missing data is an error, even a JPEG's end marker alone: half a page must not pass for a whole one.

Pillow decodes, since it tells damage reliably; OpenCV takes some broken files for whole, and which ones depends on its
version. The one exception is a JPEG in which nothing can be missing (see :class:`.containers.jpeg.PlainJpeg`): OpenCV
gives the same pixels in two thirds of the time and half the memory.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.ExifTags import Base as ExifTag
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from paddlewheel.errors import PaddlewheelError, UndecodableError
from paddlewheel.inference import Buffer
from paddlewheel.pipelines.containers import gif, jpeg, png, tiff
from paddlewheel.pipelines.picture_header import check_pixels, inspect

Pixels = npt.NDArray[np.uint8]

# Ours is the only limit, and it is checked before a plugin sees the bytes: Pillow's own, a global with a class of
# error and a warning of its own, is off.
Image.MAX_IMAGE_PIXELS = None

_STRIP_PIXELS = 1 << 20  # 1 MiB of Pillow's four bytes a pixel: stays in the cache of a core
_MAX_COUNTED_FRAMES = 1000
_DEEP_GREY = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}


@dataclass(frozen=True, slots=True)
class DecodedPicture:
    """`pixels` are BGR, contiguous, of shape (height, width, 3), upright; `warnings` are sentences for the caller."""

    pixels: Pixels
    warnings: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Width as displayed."""
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        """Height as displayed."""
        return int(self.pixels.shape[0])


class _Source(NamedTuple):
    """What a decoder is given.

    `frames` is how many the file has (None: the plugin counts cheaply itself); `is_sound_jpeg` lets OpenCV decode it.
    """

    data: bytes
    frames: int | None = 1
    is_sound_jpeg: bool = False


def _prepare_jpeg(data: bytes) -> _Source:
    plain = jpeg.plain(data)
    return _Source(plain.data, is_sound_jpeg=plain.is_sound)


def _prepare_png(data: bytes) -> _Source:
    plain = png.plain(data)
    return _Source(plain.data, plain.frames)


class _Format(NamedTuple):
    """How a format is read: Pillow's plugin, what is done to the bytes before, what one of several is called."""

    plugin: Callable[[io.BytesIO], ImageFile.ImageFile]
    prepare: Callable[[bytes], _Source] = _Source
    frame: str = "frame"


_FORMATS: Mapping[str, _Format] = {
    "JPEG": _Format(JpegImageFile, _prepare_jpeg),
    "PNG": _Format(PngImageFile, _prepare_png),
    "GIF": _Format(GifImageFile, lambda data: _Source(data, gif.count_frames(data, _MAX_COUNTED_FRAMES))),
    "BMP": _Format(BmpImageFile),
    "WebP": _Format(WebPImageFile, lambda data: _Source(data, None)),
    "TIFF": _Format(TiffImageFile, lambda data: _Source(data, tiff.count_pages(data, _MAX_COUNTED_FRAMES)), "page"),
    "AVIF": _Format(AvifImageFile, lambda data: _Source(data, None)),
}


def decode(data: Buffer, max_pixels: int) -> DecodedPicture:
    """Return the picture in `data`.

    Raises what :func:`~paddlewheel.pipelines.picture_header.inspect` does, and
    :class:`~paddlewheel.errors.UndecodableError` where the pixels are truncated or broken; nothing else.
    """
    header = inspect(data, max_pixels)
    form = _FORMATS[header.format]
    with _as_undecodable(header.format):
        source = form.prepare(bytes(data))
        with form.plugin(io.BytesIO(source.data)) as image:
            check_pixels(*image.size, max_pixels)
            frames = source.frames or int(getattr(image, "n_frames", 1))
            is_opencv_safe = source.is_sound_jpeg and image.mode in {"L", "RGB"}
            pixels = _opencv_bgr(source.data) if is_opencv_safe else _pillow_bgr(image)
            orientation = _orientation(image)
    return DecodedPicture(_upright(pixels, orientation), _frame_warnings(form.frame, frames))


@contextmanager
def _as_undecodable(name: str) -> Iterator[None]:
    """Turn whatever a plugin raises over hostile bytes into our error, and keep its warnings to itself."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except PaddlewheelError:
        raise
    except Exception as error:
        fault = "truncated" if isinstance(error, EOFError) or "truncated" in str(error) else "truncated or broken"
        raise UndecodableError(f"The {name} picture is {fault} and cannot be decoded.") from error


def _frame_warnings(frame: str, frames: int) -> tuple[str, ...]:
    if frames == 1:
        return ()
    total = f"at least {frames}" if frames >= _MAX_COUNTED_FRAMES else str(frames)
    return (f"Only {frame} 1 of {total} was read.",)


def _opencv_bgr(data: bytes) -> Pixels:
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None:
        raise UndecodableError("The JPEG picture is broken and cannot be decoded.")
    return np.asarray(pixels, np.uint8)


def _pillow_bgr(image: ImageFile.ImageFile) -> Pixels:
    """Decode and convert strip by strip, so that beside the decoder's own pixels only the result is held."""
    is_deep_colour = _is_deep_colour(image)
    image.load()
    flatten = _choose_flatten(image, is_deep_colour=is_deep_colour)
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for rows, strip in _strips(image):
        flat = flatten(strip)
        cv2.cvtColor(flat, cv2.COLOR_GRAY2BGR if flat.ndim == 2 else cv2.COLOR_RGB2BGR, dst=pixels[rows])
    return pixels


def _strips(image: Image.Image) -> Iterator[tuple[slice, Image.Image]]:
    if image.width * image.height <= _STRIP_PIXELS:
        yield slice(None), image
        return
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        bottom = min(top + rows, image.height)
        yield slice(top, bottom), image.crop((0, top, image.width, bottom))


def _choose_flatten(image: Image.Image, *, is_deep_colour: bool) -> Callable[[Image.Image], Pixels]:
    """Return what makes a strip of `image` grey or RGB of eight bits without transparency."""
    if image.mode in _DEEP_GREY:
        full_scale = _full_scale(max(_peak(np.asarray(strip)) for _, strip in _strips(image)))
        return lambda strip: _scaled(np.asarray(strip), full_scale)
    if is_deep_colour:
        table = _high_byte_table(image)
        return lambda strip: _on_white(strip.point(table))
    return _on_white


def _on_white(strip: Image.Image) -> Pixels:
    """Return `strip` as grey or RGB, its transparency filled with white."""
    if strip.has_transparency_data:
        paper = Image.new("RGB", strip.size, "white")
        ink = strip.convert("RGBA")
        paper.paste(ink, mask=ink)
        return np.asarray(paper)
    if strip.mode in {"L", "RGB"}:
        return np.asarray(strip)
    return np.asarray(strip.convert("L" if strip.mode == "1" else "RGB"))


def _peak(array: npt.NDArray[Any]) -> float:
    return float(np.max(array, initial=0, where=np.isfinite(array)))


def _full_scale(peak: float) -> float:
    """Return the value that becomes white: the largest of as many bits as `peak` needs, at least 8; 1 up to 1."""
    return 1.0 if peak <= 1 else float(max(255, 2 ** int(peak).bit_length() - 1))


def _scaled(array: npt.NDArray[Any], full_scale: float) -> Pixels:
    """Return `array` with 0 to `full_scale` spread over 0 to 255; what lies outside is clipped, NaN is black."""
    unit = np.nan_to_num(array.astype(np.float64) / full_scale)
    pixels: Pixels = np.rint(unit.clip(0, 1) * 255).astype(np.uint8)
    return pixels


def _is_deep_colour(image: ImageFile.ImageFile) -> bool:
    """Say whether the plugin will cut 16-bit channels to their high byte (known until the picture is loaded)."""
    is_colour = image.mode in {"LA", "RGB", "RGBA"} and isinstance(image, PngImageFile | TiffImageFile)
    return is_colour and any(";16" in str(tile.args) for tile in image.tile)


def _high_byte_table(image: Image.Image) -> list[int]:
    """Return the point table that spreads the bits in use over 0 to 255, in every band but alpha."""
    colours = [band for band in image.getbands() if band != "A"]
    peak = max(int(np.asarray(strip.getchannel(band)).max()) for band in colours for _, strip in _strips(image))
    full_scale = max(1, 2 ** peak.bit_length() - 1)
    spread = [min(255, value * 255 // full_scale) for value in range(256)]
    return spread * len(colours) + list(range(256)) * (len(image.getbands()) - len(colours))


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation that is still to be applied; Pillow has applied a TIFF's own tag while loading."""
    exif = Image.Exif()
    try:
        exif.load(image.info.get("exif", b""))
        return int(exif.get(ExifTag.Orientation, 1))
    except Exception:  # damaged metadata of any kind must not fail the picture
        return 1


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    turn = _TURNS.get(orientation)
    return pixels if turn is None else np.ascontiguousarray(turn(pixels), np.uint8)


# EXIF 2.32, tag 0x0112: what brings the stored rows and columns back to the displayed picture.
_TURNS: Mapping[int, Callable[[Pixels], npt.NDArray[Any]]] = {
    2: lambda pixels: cv2.flip(pixels, 1),
    3: lambda pixels: cv2.rotate(pixels, cv2.ROTATE_180),
    4: lambda pixels: cv2.flip(pixels, 0),
    5: cv2.transpose,
    6: lambda pixels: cv2.rotate(pixels, cv2.ROTATE_90_CLOCKWISE),
    7: lambda pixels: cv2.flip(cv2.transpose(pixels), -1),
    8: lambda pixels: cv2.rotate(pixels, cv2.ROTATE_90_COUNTERCLOCKWISE),
}
