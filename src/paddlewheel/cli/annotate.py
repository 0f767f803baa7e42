"""Draws what was read: boxes with numbers on the picture, and beside it the text, each line where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFont

from paddlewheel.pipelines.image import decode

_FONT_FOLDERS: Final = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), Path.home() / ".local/share/fonts")
_CJK_FONTS: Final = ("NotoSansCJK*-Regular.*", "NotoSansSC-*", "SourceHanSans*", "wqy-*", "DroidSansFallback*")
_COLOURS: Final = ((214, 57, 57), (33, 118, 199), (42, 150, 80), (190, 110, 20), (130, 70, 190))
_LEAST_TEXT: Final = 10
_GREATEST_TEXT: Final = 64


@cache
def cjk_font() -> Path | None:
    """Return a font of this system that has Chinese characters, if there is one."""
    for pattern in _CJK_FONTS:
        for folder in _FONT_FOLDERS:
            found = next(
                (each for each in sorted(folder.rglob(pattern)) if each.suffix in (".ttc", ".ttf", ".otf")), None
            )
            if found is not None:
                return found
    return None


def annotate(encoded: bytes, body: Mapping[str, Any], max_pixels: int) -> Image.Image:
    """Return the picture with the lines of `body` (of ``POST /ocr``) drawn on it and written to its right."""
    picture = Image.fromarray(decode(encoded, max_pixels).pixels[:, :, ::-1])
    page = Image.new("RGB", (picture.width * 2, picture.height), "white")
    page.paste(picture)
    draw = ImageDraw.Draw(page)
    for index, line in enumerate(body["lines"]):
        corners = [(x, y) for x, y in line.get("box") or ()]
        if corners:
            _draw_line(draw, index, line["text"], corners, picture.width)
    return page


def _draw_line(
    draw: ImageDraw.ImageDraw, index: int, text: str, corners: list[tuple[float, float]], offset: int
) -> None:
    colour = _COLOURS[index % len(_COLOURS)]
    left, top = min(x for x, _ in corners), min(y for _, y in corners)
    height = max(y for _, y in corners) - top
    width = max(x for x, _ in corners) - left
    size = round(min(max(min(width, height) * 0.7, _LEAST_TEXT), _GREATEST_TEXT))
    draw.polygon(corners, outline=colour, width=2)
    draw.text((left, max(top - size * 0.6, 0)), str(index + 1), fill=colour, font=_font(max(size // 2, _LEAST_TEXT)))
    if cjk_font() is not None:
        draw.text((offset + left, top), text, fill=colour, font=_font(size))


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    found = cjk_font()
    return ImageFont.load_default(size) if found is None else ImageFont.truetype(found, size)
