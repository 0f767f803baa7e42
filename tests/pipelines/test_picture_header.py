import contextlib
import io
import struct
import subprocess
import sys
import time
import zlib

import pytest
from PIL import Image

from paddlewheel.errors import InvalidArgumentError, PayloadTooLargeError, UndecodableError, UnsupportedFormatError
from paddlewheel.pipelines.picture_header import PictureHeader, inspect

LIMIT = 50_000_000


def encoded(format_name: str, size: tuple[int, int] = (37, 23), **options: object) -> bytes:
    """Return a white picture as a file."""
    buffer = io.BytesIO()
    Image.new("RGB", size, "white").save(buffer, format_name, **options)
    return buffer.getvalue()


def png_header(width: int, height: int) -> bytes:
    """Return a PNG that ends where its pixels would begin."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", b"x\x9c\x03\0\0\0\0\x01"),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


BOMBS = {
    "PNG": png_header(30_000, 30_000),
    "GIF screen": b"GIF89a"
    + struct.pack("<HHBBB", 65_535, 65_535, 0, 0, 0)
    + b","
    + struct.pack("<HHHHB", 0, 0, 1, 1, 0),
    "GIF frame": b"GIF89a"
    + struct.pack("<HHBBB", 1, 1, 0, 0, 0)
    + b","
    + struct.pack("<HHHHB", 9, 9, 60_000, 60_000, 0),
    "BMP": b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 30_000, -30_000, 1, 24, 0),
    "WebP extended": b"RIFF\0\0\0\0WEBPVP8X\n\0\0\0\0\0\0\0" + b"\xff\xff\x00" * 2,
    "WebP lossless": b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0/" + struct.pack("<I", 0x3FFF | 0x3FFF << 14),
    "WebP lossy": b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 16_383, 16_383),
    "TIFF": b"II*\0\x08\0\0\0\x02\0"
    + struct.pack("<HHII", 256, 4, 1, 30_000)
    + struct.pack("<HHII", 257, 4, 1, 30_000)
    + bytes(4),
    "BigTIFF": b"MM\0+\0\x08\0\0"
    + struct.pack(">QQ", 16, 2)
    + struct.pack(">HHQQ", 256, 16, 1, 30_000)
    + struct.pack(">HHQQ", 257, 16, 1, 30_000)
    + bytes(8),
    "JPEG": b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x0b\x08" + struct.pack(">HH", 60_000, 60_000) + b"\x01\x01\x11\0",
    "AVIF": b"\0\0\0\x14ftypavif\0\0\0\0avif"
    b"\0\0\0\x30meta\0\0\0\0\0\0\0\x24iprp\0\0\0\x1cipco\0\0\0\x14ispe\0\0\0\0" + struct.pack(">II", 30_000, 30_000),
}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("JPEG", encoded("JPEG")),
        ("JPEG", encoded("JPEG", progressive=True)),
        ("PNG", encoded("PNG")),
        ("GIF", encoded("GIF")),
        ("BMP", encoded("BMP")),
        ("WebP", encoded("WEBP")),
        ("WebP", encoded("WEBP", lossless=True)),
        ("WebP", encoded("WEBP", exif=b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0")),
        ("TIFF", encoded("TIFF")),
        ("TIFF", encoded("TIFF", compression="tiff_lzw", big_tiff=True)),
        ("AVIF", encoded("AVIF")),
    ],
)
def test_format_and_size_come_from_the_bytes(name: str, data: bytes) -> None:
    """Each format that is read is named, with its size, from bytes, bytearray and memoryview alike."""
    for form in (bytes, bytearray, memoryview):
        assert inspect(form(data), LIMIT) == PictureHeader(name, 37, 23)


@pytest.mark.parametrize(
    ("found", "data"),
    [
        ("SVG", b'<?xml version="1.0"?>\n<!-- drawn -->\n<svg xmlns="http://www.w3.org/2000/svg"/>'),
        ("text", "你好,世界".encode()),
        ("text", ("a" + "字" * 3000).encode()),
        ("text", "你好".encode("utf-16")),
        ("HTML", b"<!DOCTYPE html><title>not found</title>"),
        ("PDF", b"%PDF-1.7\n"),
        ("HEIC", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"),
        ("MP4", b"\0\0\0\x18ftypisom\0\0\0\0isomavc1"),
        ("JPEG XL", b"\xff\x0a\x00\x01"),
        ("ZIP", b"PK\x03\x04\x14\x00"),
        ("RIFF", b"RIFF\x24\x00\x00\x00WAVEfmt "),
        ("unknown data", b"\x00\x01\x02\x03\xfe\xff"),
        ("BMP with run-length compression", b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 9, 9, 1, 8, 1)),
    ],
)
def test_other_kinds_are_refused_by_name(found: str, data: bytes) -> None:
    """A kind that is not read is a 415 which names what was found and what is allowed."""
    with pytest.raises(UnsupportedFormatError, match=f"is {found}; expected") as caught:
        inspect(data, LIMIT)
    assert caught.value.http_status == 415


def test_nothing_is_an_invalid_argument() -> None:
    """No bytes at all are a 400, not a kind of picture."""
    with pytest.raises(InvalidArgumentError, match="empty") as caught:
        inspect(b"", LIMIT)
    assert caught.value.http_status == 400


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_refused_from_its_header(data: bytes) -> None:
    """A claim over the limit is a 413 that names claim, limit and setting, in every format and frame."""
    with pytest.raises(PayloadTooLargeError, match=r"\d+x\d+ = \d+ pixels; at most 50000000 .*limits\.max_pixels"):
        inspect(data, LIMIT)


def test_the_limit_is_the_largest_size_that_passes() -> None:
    """A picture of exactly the limit is read, one pixel fewer in the limit refuses it."""
    assert inspect(encoded("PNG", (50, 20)), 1000).width == 50
    with pytest.raises(PayloadTooLargeError):
        inspect(encoded("PNG", (50, 20)), 999)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF"])
def test_a_header_cut_anywhere_is_an_error_of_ours(name: str) -> None:
    """Whatever length of a header arrives, it is read or refused, and nothing else is raised."""
    data = encoded(name)
    for length in range(1, min(len(data), 600)):
        with contextlib.suppress(InvalidArgumentError):
            assert inspect(data[:length], LIMIT).width == 37


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xd8\xff\xe0" + b"\xff\xe0\0\x02" * 4_000_000,
        b"\xff\xd8\xff\xe0\0\x02" + bytes(16_000_000),
        b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0) + b"!\xfe" + b"\x01a" * 8_000_000,
        b"II*\0\x08\0\0\0\xff\xff" + bytes(16_000_000),
        b"\0\0\0\x14ftypavif\0\0\0\0avif" + b"\0\0\0\x08free" * 2_000_000,
    ],
    ids=["JPEG segments", "JPEG filling", "GIF comment", "TIFF tags", "AVIF boxes"],
)
def test_a_long_way_to_the_size_is_cut_short(data: bytes) -> None:
    """Sixteen megabytes of empty structure before the size cost the front process no more than a moment."""
    started = time.thread_time()
    with pytest.raises(UndecodableError):
        inspect(data, LIMIT)
    assert time.thread_time() - started < 0.2


def test_tiles_may_not_be_far_larger_than_their_picture() -> None:
    """A small TIFF that makes its decoder hold a huge tile is refused."""
    entries = ((256, 100), (257, 100), (322, 40_000), (323, 40_000))
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    with pytest.raises(UndecodableError, match="tiles of 40000x40000"):
        inspect(b"II*\0\x08\0\0\0\x04\0" + directory + bytes(4), LIMIT)


def test_the_front_process_imports_no_picture_library() -> None:
    """Reading headers needs neither OpenCV nor Pillow."""
    code = "import sys, paddlewheel.pipelines.picture_header; print('cv2' in sys.modules, 'PIL' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
