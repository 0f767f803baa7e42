"""Pictures that each show a number of their own."""

from __future__ import annotations

import io

from PIL import Image, ImageDraw, ImageFont

FONT = "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc"


def picture_of(digits: str, scale: float = 1.0) -> bytes:
    """Return a picture of `digits` as a PNG file, its size set by `scale`."""
    font = ImageFont.truetype(FONT, round(40 * scale), index=2)
    width, height = round(260 * scale), round(90 * scale)
    image = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(image).text((width / 2, height / 2), digits, "black", font, anchor="mm")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
