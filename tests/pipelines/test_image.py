import contextlib
import io
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageOps

from paddlewheel.errors import InvalidArgumentError, PayloadTooLargeError, UndecodableError, UnsupportedFormatError
from paddlewheel.pipelines.image import DecodedPicture, decode
from paddlewheel.pipelines.picture_header import inspect

LIMIT = 50_000_000
ORIENTATION = 0x0112
# What a viewer does for each EXIF orientation, undone: the stored pixels that look upright under it.
STORED_AS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def drawing(size: tuple[int, int] = (120, 48)) -> Image.Image:
    """Return black bars and a coloured corner on white: no two of its turns and mirrors are alike."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((8, 8, 60, 16), fill="black")
    draw.rectangle((8, 24, 24, 40), fill="black")
    draw.rectangle((size[0] - 24, size[1] - 16, size[0] - 9, size[1] - 9), fill=(200, 30, 60))
    return image


def encoded(image: Image.Image, name: str, **options: object) -> bytes:
    """Return `image` as a file."""
    buffer = io.BytesIO()
    image.save(buffer, name, **options)
    return buffer.getvalue()


def bgr(image: Image.Image) -> npt.NDArray[np.uint8]:
    """Return the pixels that `image` should decode to."""
    return np.asarray(image.convert("RGB"))[:, :, ::-1]


def assert_like(picture: DecodedPicture, image: Image.Image, tolerance: int = 0) -> None:
    """Check the promises on the array, and that it shows `image`."""
    pixels = picture.pixels
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert pixels.shape == (image.height, image.width, 3)
    assert (picture.width, picture.height) == image.size
    # The mean tells a lossy codec from a wrong turn, which moves whole bars.
    assert np.abs(pixels.astype(int) - bgr(image)).mean() <= tolerance


def deep(values: npt.NDArray[np.uint16], name: str, **options: object) -> bytes:
    """Return 16-bit grey as a file."""
    return encoded(Image.fromarray(values), name, **options)


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *extra: tuple[bytes, bytes]) -> bytes:
    """Return a PNG of unfiltered `rows`, each with its leading zero, with `extra` chunks before the pixels."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


@pytest.mark.parametrize("orientation", STORED_AS)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("WEBP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("AVIF", {}),
    ],
)
def test_pixels_are_upright(name: str, options: dict[str, object], orientation: int) -> None:
    """Each orientation of each format that has them decodes to the displayed picture and its size."""
    method = STORED_AS[orientation]
    stored = drawing() if method is None else drawing().transpose(method)
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    assert_like(decode(encoded(stored, name, exif=exif, **options), LIMIT), drawing(), tolerance=4)


def test_exif_after_the_pixels_of_a_png_counts() -> None:
    """PNG allows eXIf at the end of the file."""
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    data = encoded(drawing().transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif)
    at = data.index(b"eXIf") - 4
    end = at + 12 + int.from_bytes(data[at : at + 4], "big")
    moved = data[:at] + data[end:-12] + data[at:end] + data[-12:]
    assert_like(decode(moved, LIMIT), drawing())


def with_alpha(image: Image.Image, mode: str) -> Image.Image:
    """Return `image` with its white made transparent over black."""
    alpha = ImageOps.invert(image.convert("L")).point(lambda value: 255 if value else 0)
    result = image.convert("RGB")
    result.paste("black", mask=ImageOps.invert(alpha))
    result.putalpha(alpha)
    return result.convert(mode)


def palette_with_transparency() -> bytes:
    """Return a palette PNG whose white is a transparent black."""
    image = drawing().convert("P", palette=Image.Palette.ADAPTIVE, colors=8)
    white = image.getpixel((0, 0))
    assert isinstance(white, int)
    palette = image.getpalette()
    assert palette is not None
    palette[3 * white : 3 * white + 3] = [0, 0, 0]
    image.putpalette(palette)
    return encoded(image, "PNG", transparency=white)


GREY = drawing().convert("L")
BILEVEL = drawing().convert("1", dither=Image.Dither.NONE)
MODES: dict[str, tuple[Callable[[], bytes], Image.Image]] = {
    "L": (lambda: encoded(GREY, "PNG"), GREY),
    "LA": (lambda: encoded(with_alpha(GREY, "LA"), "PNG"), GREY),
    "1": (lambda: encoded(BILEVEL, "PNG"), BILEVEL),
    "1 TIFF G4": (lambda: encoded(BILEVEL, "TIFF", compression="group4"), BILEVEL),
    "P": (lambda: encoded(drawing().convert("P", palette=Image.Palette.ADAPTIVE), "PNG"), drawing()),
    "P+tRNS": (palette_with_transparency, drawing()),
    "GIF+transparency": (lambda: encoded(with_alpha(drawing(), "RGBA"), "GIF"), drawing()),
    "RGB": (lambda: encoded(drawing(), "PNG"), drawing()),
    "RGB+tRNS": (lambda: encoded(drawing(), "PNG", transparency=(0, 0, 0)), drawing().point(lambda v: v or 255)),
    "RGBA": (lambda: encoded(with_alpha(drawing(), "RGBA"), "PNG"), drawing()),
    "RGBA WebP": (lambda: encoded(with_alpha(drawing(), "RGBA"), "WEBP", lossless=True), drawing()),
    "BMP": (lambda: encoded(drawing(), "BMP"), drawing()),
    "CMYK TIFF": (lambda: encoded(drawing().convert("CMYK"), "TIFF"), drawing()),
    "CMYK JPEG": (lambda: encoded(drawing().convert("CMYK"), "JPEG", quality=95), drawing()),
    "grey JPEG": (lambda: encoded(GREY, "JPEG", quality=95), GREY),
    "YCbCr TIFF": (lambda: encoded(drawing().convert("YCbCr"), "TIFF"), drawing()),
    "16 bits": (lambda: deep(np.asarray(GREY, np.uint16) * 257, "PNG"), GREY),
    "16 bits, 10 used": (lambda: deep(np.asarray(GREY, np.uint16) * 4, "PNG"), GREY),
    "16 bits TIFF, 12 used": (lambda: deep(np.asarray(GREY, np.uint16) * 16, "TIFF"), GREY),
    "16 bits TIFF, 8 used": (lambda: deep(np.asarray(GREY, np.uint16), "TIFF"), GREY),
    "32 bits TIFF": (lambda: encoded(Image.fromarray(np.asarray(GREY, np.int32) * 4), "TIFF"), GREY),
    "float TIFF up to 1": (lambda: encoded(Image.fromarray(np.asarray(GREY, np.float32) / 255), "TIFF"), GREY),
    "float TIFF up to 255": (lambda: encoded(Image.fromarray(np.asarray(GREY, np.float32)), "TIFF"), GREY),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_shows_the_same_drawing(mode: str) -> None:
    """Grey, bilevel, palette, transparent, CMYK, deep and floating pixels all decode to what a person would see."""
    make, expected = MODES[mode]
    assert_like(decode(make(), LIMIT), expected, tolerance=2)


def test_adobe_cmyk_is_not_negative() -> None:
    """A CMYK JPEG as Adobe writes it, inks inverted and marked by APP14, is white where it is white."""
    data = encoded(Image.new("CMYK", (32, 32), (0, 0, 0, 0)), "JPEG")
    assert b"Adobe" in data
    assert decode(data, LIMIT).pixels.min() > 250


@pytest.mark.parametrize(("colour", "channels"), [(2, 3), (6, 4)])
@pytest.mark.parametrize("peak", [65_535, 1020])
def test_deep_colour_is_spread_over_the_range(colour: int, channels: int, peak: int) -> None:
    """A PNG of 16 bits a channel that uses ten of them is not black; its alpha is left alone."""
    row = np.full((8, channels), peak, ">u2")
    row[:4, :3] = 0
    row[:, 3:] = 65_535
    pixels = decode(png(8, 2, 16, colour, (b"\0" + row.tobytes()) * 2), LIMIT).pixels
    assert pixels[:, :4].max() == 0
    assert pixels[:, 4:].min() == 255


def test_a_blank_deep_page_stays_blank() -> None:
    """The stretch subtracts nothing, so the grain of blank paper is not blown up into marks."""
    grain = np.random.default_rng(5).integers(64_000, 65_536, (40, 40), np.uint16)
    assert decode(deep(grain, "PNG"), LIMIT).pixels.min() > 245
    assert decode(deep(np.zeros((40, 40), np.uint16), "PNG"), LIMIT).pixels.max() == 0


def test_numbers_that_are_no_shade_do_no_harm() -> None:
    """NaN and negative values of a floating point TIFF are black, infinity is white, the rest is as without them."""
    values = np.asarray(GREY, np.float32) / 255
    values[0, :3] = np.nan, -7, np.inf
    pixels = decode(encoded(Image.fromarray(values), "TIFF"), LIMIT).pixels
    assert pixels[0, :3, 0].tolist() == [0, 0, 255]
    assert (pixels[1:, :, 0] == np.asarray(GREY)[1:]).all()


@pytest.mark.parametrize(
    ("name", "options", "warning"),
    [
        ("GIF", {}, "Only frame 1 of 3 was read."),
        ("WEBP", {"lossless": True}, "Only frame 1 of 3 was read."),
        ("PNG", {}, "Only frame 1 of 3 was read."),
        ("AVIF", {}, "Only frame 1 of 3 was read."),
        ("TIFF", {}, "Only page 1 of 3 was read."),
        ("TIFF", {"big_tiff": True}, "Only page 1 of 3 was read."),
    ],
)
def test_of_several_frames_the_first_is_read_and_said_so(name: str, options: dict[str, object], warning: str) -> None:
    """A file of several pages gives the first one and a warning that names the total."""
    others = [Image.new("RGB", drawing().size, colour) for colour in ("red", "blue")]
    picture = decode(encoded(drawing(), name, save_all=True, append_images=others, **options), LIMIT)
    assert_like(picture, drawing(), tolerance=4)
    assert picture.warnings == (warning,)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF"])
def test_one_frame_gives_no_warning(name: str) -> None:
    """A plain picture has nothing to warn of, and what follows its end is not looked at."""
    assert decode(encoded(drawing(), name), LIMIT).warnings == ()
    if name != "AVIF":  # a box must follow a box
        assert_like(decode(encoded(drawing(), name) + b"\0trailing garbage" * 99, LIMIT), drawing(), tolerance=4)


def test_a_phone_jpeg_with_a_second_picture_is_one_picture() -> None:
    """An MPO file (a gain map or a preview behind the photo) is read as the photo, without a warning."""
    data = encoded(drawing(), "MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))])
    assert Image.open(io.BytesIO(data)).format == "MPO"
    picture = decode(data, LIMIT)
    assert_like(picture, drawing(), tolerance=4)
    assert picture.warnings == ()


def test_countless_frames_are_not_all_counted() -> None:
    """A GIF of very many frames costs no more than its first thousand."""
    data = encoded(drawing(), "GIF")
    frame = b",\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0"
    picture = decode(data[:-1] + frame * 100_000 + b";", LIMIT)
    assert picture.warnings == ("Only frame 1 of at least 1000 was read.",)


def tall_drawing() -> Image.Image:
    """Return 400x300 pixels with something at the top and at the bottom, and grain so that it has a size."""
    noise = np.random.default_rng(1).integers(180, 256, (300, 400, 3), np.uint8)
    image = Image.fromarray(noise)
    draw = ImageDraw.Draw(image)
    draw.rectangle((20, 20, 200, 40), fill="black")
    draw.rectangle((20, 260, 200, 280), fill="black")
    return image


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("GIF", {}),
        ("BMP", {}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_adobe_deflate"}),
        ("AVIF", {}),
    ],
)
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_cut_upload_is_refused(name: str, options: dict[str, object], share: float) -> None:
    """Half a file, or nine tenths of it, is a 422 that says so, and never a picture with a flat rest."""
    data = encoded(tall_drawing(), name, **options)
    with pytest.raises(UndecodableError, match="truncated"):
        decode(data[: int(len(data) * share)], LIMIT)


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_without_its_end_marker_is_truncated(*, progressive: bool) -> None:
    """Only the last two bytes missing is refused as well, whatever the decoder's version would say."""
    with pytest.raises(UndecodableError, match="end marker"):
        decode(encoded(tall_drawing(), "JPEG", progressive=progressive)[:-2], LIMIT)


def test_scans_without_end_are_refused() -> None:
    """A progressive JPEG that makes its decoder pass over the picture a hundred times is refused."""
    data = encoded(drawing(), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    with pytest.raises(UndecodableError, match="scans"):
        decode(data[:-2] + data[last:-2] * 100 + data[-2:], LIMIT)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_damaged_metadata_does_no_harm(name: str) -> None:
    """A broken colour profile and broken EXIF are passed over."""
    exif = {} if name == "TIFF" else {"exif": b"Exif\0\0II*\0\xff\xff\xff\xff"}
    data = encoded(drawing(), name, icc_profile=b"no profile", **exif)
    assert_like(decode(data, LIMIT), drawing(), tolerance=4)


def test_damaged_png_metadata_does_no_harm() -> None:
    """Neither a profile that unpacks to megabytes, nor text without end, nor a checksum of EXIF fails a PNG."""
    rows = (b"\0" + b"\xff\xff\xff" * 4) * 4
    profile = b"icc\0\0" + zlib.compress(bytes(30_000_000))
    text = b"Comment\0\0" + zlib.compress(b"a" * 30_000_000)
    data = png(4, 4, 8, 2, rows, (b"iCCP", profile), (b"zTXt", text), (b"eXIf", b"II*\0broken"))
    damaged = data.replace(b"broken", b"BROKEN")
    assert decode(damaged, LIMIT).pixels.min() == 255


def test_a_damaged_profile_does_not_fail_a_jpeg() -> None:
    """An ICC segment that is too short to name its part is passed over."""
    data = encoded(drawing(), "JPEG")
    broken = data[:2] + b"\xff\xe2\0\x0eICC_PROFILE\0" + data[2:]
    assert_like(decode(broken, LIMIT), drawing(), tolerance=4)


def test_a_bomb_costs_neither_memory_nor_time() -> None:
    """A PNG of 66 bytes that claims 30000x30000 is refused at once, and nothing is allocated for it."""
    bomb = png(30_000, 30_000, 8, 2, b"")
    process = psutil.Process()
    before, started = process.memory_info().rss, time.thread_time()
    with pytest.raises(PayloadTooLargeError):
        decode(bomb, LIMIT)
    assert time.thread_time() - started < 0.1
    assert process.memory_info().rss - before < 5_000_000


def test_no_limit_but_ours_rules() -> None:
    """Pillow's own limit, which would refuse a WebP or GIF below a raised one of ours, is off."""
    assert Image.MAX_IMAGE_PIXELS is None


def test_a_huge_bilevel_scan_works_when_the_limit_allows() -> None:
    """A page of 12000x16000 is refused at 50 and read at 250 megapixels, within twice the size of its result."""
    page = encoded(Image.new("1", (12_000, 16_000), 1), "PNG")
    with pytest.raises(PayloadTooLargeError):
        decode(page, LIMIT)
    code = (
        "import resource, sys; from paddlewheel.pipelines.image import decode\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "picture = decode(sys.stdin.buffer.read(), 250_000_000)\n"
        "assert (picture.width, picture.height, picture.pixels.min()) == (12_000, 16_000, 255)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], input=page, capture_output=True, check=True)
    assert int(done.stdout) * 1024 < 2 * 12_000 * 16_000 * 3


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "I;16"])
def test_strips_join_without_a_seam(mode: str) -> None:
    """A picture of many strips, the last of them partial, decodes as one."""
    values = np.random.default_rng(2).integers(0, 256, (1531, 1777), np.uint8)
    if mode == "I;16":
        data, expected = deep(values.astype(np.uint16) * 257, "TIFF"), Image.fromarray(values)
    else:
        expected = Image.fromarray(values)
        data = encoded(expected.convert(mode), "PNG", compress_level=1)
    assert_like(decode(data, LIMIT), expected)


@pytest.mark.parametrize("size", [(1, 1), (4000, 1), (1, 4000), (16, 16), (31, 33), (33, 63)])
@pytest.mark.parametrize("name", ["PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF"])
def test_tiny_pictures_and_strips_decode(name: str, size: tuple[int, int]) -> None:
    """One pixel, and a line of pixels either way, are pictures."""
    assert_like(decode(encoded(Image.new("RGB", size, "white"), name), LIMIT), Image.new("RGB", size, "white"))


def test_the_kind_is_told_by_bytes() -> None:
    """What is no picture is refused by the decoder as by the header reader."""
    with pytest.raises(UnsupportedFormatError, match="HEIC"):
        decode(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", LIMIT)


def test_a_memoryview_is_read() -> None:
    """Bytes in shared memory are decoded as they are."""
    assert_like(decode(memoryview(bytearray(encoded(drawing(), "PNG"))), LIMIT), drawing())


def seeds() -> list[bytes]:
    """Return one small file of each format, and of each way of storing it that has code of its own."""
    small = drawing((70, 48))
    frames = {"save_all": True, "append_images": [Image.new("RGB", small.size, "red")]}
    return [
        encoded(small, "JPEG"),
        encoded(small, "JPEG", progressive=True, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0"),
        encoded(small.convert("CMYK"), "JPEG"),
        encoded(small, "PNG", **frames),
        encoded(small.convert("P"), "PNG", transparency=3),
        deep(np.asarray(small.convert("L"), np.uint16) * 100, "PNG"),
        encoded(small, "GIF", **frames),
        encoded(small.convert("P"), "BMP"),
        encoded(small, "BMP"),
        encoded(small, "WEBP", **frames),
        encoded(small, "WEBP", lossless=True),
        encoded(small, "TIFF", **frames),
        encoded(small.convert("1"), "TIFF", compression="group4"),
        encoded(small, "TIFF", compression="jpeg"),
        encoded(small, "TIFF", compression="tiff_lzw", big_tiff=True),
        encoded(small, "AVIF"),
    ]


SEEDS = seeds()
CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6)


@settings(max_examples=1500, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.sampled_from(SEEDS), changes=CHANGES, kept=st.floats(0, 1), is_head=st.booleans())
def test_damage_is_always_an_error_of_ours(
    seed: bytes, changes: list[tuple[float, int]], kept: float, *, is_head: bool
) -> None:
    """Whatever bytes are changed or cut off, the picture is read or refused in bounded time; nothing else leaks."""
    data = bytearray(seed)
    for place, value in changes:
        data[int(place * min(len(data), 200 if is_head else len(data)))] = value
    data = data[: int(len(data) * kept)] if kept > 0.5 else data
    with contextlib.suppress(InvalidArgumentError):
        picture = decode(data, 200_000)
        assert picture.width * picture.height <= 200_000
        assert inspect(data, 200_000)
