"""Pictures with text for the trials."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image, ImageDraw, ImageFont

FONT = "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc"


def drawn(text: str, size: tuple[int, int] = (400, 120), height: int = 56) -> Image.Image:
    """Return black `text` on white, from the left, in the middle."""
    picture = Image.new("RGB", size, "white")
    font = ImageFont.truetype(FONT, height, index=2)
    ImageDraw.Draw(picture).text((30, size[1] / 2), text, fill="black", font=font, anchor="lm")
    return picture


def encoded(picture: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """Return `picture` as a file."""
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()
