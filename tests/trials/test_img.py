"""Trials IMG-01, -03, -05, -06, -07, -08 of the field reports, over HTTP."""

from __future__ import annotations

import base64
import struct
import time
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from conftest import RunningServer, StartServer
from drawing import drawn, encoded
from trials.ocr_calls import SETTINGS, post, text_of, together

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    6: Image.Transpose.ROTATE_90,
    8: Image.Transpose.ROTATE_270,
}


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> RunningServer:
    """Return a server with the default limit of pixels."""
    return start_server(SETTINGS.format(pixels=50_000_000))


def oriented(tag: int, form: str = "JPEG") -> bytes:
    """Return a picture whose pixels lie as EXIF orientation `tag` says."""
    upright = drawn("ABC 123")
    exif = Image.Exif()
    exif[0x0112] = tag
    return encoded(upright.transpose(TURNS[tag]) if tag in TURNS else upright, form, exif=exif)


def test_img_01_orientation_is_applied_on_every_path(server: RunningServer) -> None:
    """The text, the size and the boxes are those of the picture as it is displayed, however it was sent."""
    pictures = [*(oriented(tag) for tag in (1, 2, 3, 6, 8)), oriented(6, "PNG")]
    seen = []
    for picture in pictures:
        base = base64.b64encode(picture).decode()
        for response in (
            server.client.post("/ocr", content=picture),
            server.client.post("/ocr", files={"image": ("x", picture)}),
            server.client.post("/ocr", json={"image": base}),
        ):
            body = response.json()
            seen.append((text_of(response), body["width"], body["height"]))
            (line,) = body["lines"]
            xs, ys = zip(*line["box"], strict=True)
            assert 10 < min(xs) < 50, line
            assert 200 < max(xs) < 330, line
            assert 10 < min(ys) < 60 < max(ys) < 110, line
    assert set(seen) == {("ABC123", 400, 120)}


def modes() -> dict[str, bytes]:
    """Return the same text in nine pixel modes."""
    picture = drawn("MODE 47", (320, 90), 48)
    grey = picture.convert("L")
    deep = np.asarray(grey, np.uint16)
    transparent = picture.convert("P", palette=Image.Palette.ADAPTIVE)
    return {
        "L": encoded(grey),
        "LA": encoded(grey.convert("LA")),
        "1": encoded(picture.convert("1")),
        "P": encoded(picture.convert("P")),
        "P+tRNS": encoded(transparent, transparency=255),
        "RGB": encoded(picture),
        "RGBA": encoded(picture.convert("RGBA")),
        "16 bit": encoded(Image.fromarray(deep * 257)),
        "16 bit, 0..1020": encoded(Image.fromarray(deep * 4)),
    }


def test_img_03_odd_pixel_modes(server: RunningServer) -> None:
    """Every mode is read, alone and in a burst; none fails its company."""
    pictures = modes()
    alone = {name: text_of(post(server, picture)) for name, picture in pictures.items()}
    assert alone == dict.fromkeys(pictures, "MODE47")
    burst = together(server, [*pictures.values(), b"broken"])
    assert [text_of(response) for response in burst[:-1]] == ["MODE47"] * len(pictures)
    assert burst[-1].status_code == 415


def test_img_05_type_by_bytes(server: RunningServer) -> None:
    """The bytes decide; of several frames the first is read, and a warning says how many there are."""
    first, second = drawn("FIRST"), drawn("SECOND")
    for form, options in (("GIF", {}), ("WEBP", {"lossless": True}), ("TIFF", {})):
        several = encoded(first, form, save_all=True, append_images=[second], **options)
        response = server.client.post("/ocr", files={"image": ("photo.jpg", several, "text/plain")})
        assert text_of(response) == "FIRST", form
        assert "1 of 2" in response.json()["warnings"][0]
    assert text_of(post(server, encoded(first, "AVIF"))) == "FIRST"
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64)
    for refused, name in ((heic, "HEIC"), (b"<?xml version='1.0'?><svg/>", "SVG"), (b"just text\n", "text")):
        response = post(server, refused)
        assert response.status_code == 415
        assert name in response.json()["detail"]
        assert "JPEG" in response.json()["detail"]


def test_img_06_truncated(server: RunningServer) -> None:
    """A picture that is cut is refused on every path, never read in part."""
    whole = drawn("TOP", (400, 300))
    baseline, progressive, png = encoded(whole, "JPEG"), encoded(whole, "JPEG", progressive=True), encoded(whole)
    cuts = [baseline[: len(baseline) // 2], baseline[: len(baseline) * 9 // 10], baseline[:-2]]
    cuts += [progressive[: len(progressive) // 2], png[: len(png) // 2]]
    for cut in cuts:
        for response in (post(server, cut), server.client.post("/ocr", files={"file": ("x.jpg", cut)})):
            assert response.status_code == 422
            assert "truncated" in response.json()["detail"]
    assert post(server, b"").status_code == 400


def bomb(side: int) -> bytes:
    """Return a PNG of a few bytes that claims to be `side` pixels square."""
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return data + b"\0\0\0\0IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))


def test_img_07_bombs_are_refused_from_the_header(server: RunningServer) -> None:
    """A claim over the limit costs neither time nor memory; the error names the claim and the setting."""
    post(server, encoded(drawn("WARM")))
    before = sum(worker.memory_info().rss for worker in server.workers())
    began = time.monotonic()
    response = post(server, bomb(30_000))
    assert time.monotonic() - began < 0.5
    assert response.status_code == 413
    assert "30000x30000" in response.json()["detail"]
    assert "limits.max_pixels" in response.json()["detail"]
    assert sum(worker.memory_info().rss for worker in server.workers()) - before < 50 << 20


def test_img_07_a_raised_limit_rules_everywhere(start_server: StartServer, server: RunningServer) -> None:
    """A real scan over the limit is refused, and read once the one setting allows it."""
    scan = encoded(Image.new("1", (12_000, 16_000), 1))
    assert post(server, scan).status_code == 413
    generous = start_server(SETTINGS.format(pixels=250_000_000))
    response = post(generous, scan)
    assert response.status_code == 200
    assert (response.json()["width"], response.json()["lines"]) == (12_000, [])
    assert generous.stop() == 0


@pytest.mark.parametrize("noisy", [False, True])
def test_img_08_slivers(server: RunningServer, noisy: bool) -> None:  # noqa: FBT001  # a case of the table
    """Pictures too small for text have none, alone and beside a normal page."""
    rng = np.random.default_rng(8)
    sizes = [(1, 1), (4000, 1), (1, 4000), (16, 16), (31, 33), (33, 63)]
    pixels: list[Any] = [
        rng.integers(0, 256, (height, width, 3), np.uint8) if noisy else np.zeros((height, width, 3), np.uint8)
        for width, height in sizes
    ]
    slivers = [encoded(Image.fromarray(each)) for each in pixels]
    *small, page = together(server, [*slivers, encoded(drawn("NORMAL"))])
    assert [response.status_code for response in small] == [200] * 6
    if not noisy:
        assert [response.json()["lines"] for response in small] == [[]] * 6
    assert text_of(page) == "NORMAL"
