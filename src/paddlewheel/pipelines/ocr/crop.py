"""Cuts lines out of a picture.

A box is four corners, clockwise from the top left of the text as it is read: its first edge runs along the line.
Turning a box is therefore rolling its corners; no pixel moves until the line is cut.
"""

from __future__ import annotations

import math
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from paddlewheel.pipelines.ocr.buckets import LINE_HEIGHT, LINE_WIDTHS, line_width

Picture = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_STANDING: Final = 1.5
_LONG: Final = 2.5
_TALL_TEXT: Final = 1.5 * LINE_HEIGHT


def turned(box: Floats, quarters: int) -> Floats:
    """Return `box` for text that lies a quarter turn clockwise, `quarters` times."""
    return np.roll(box, -quarters, axis=0)


def extent(box: Floats) -> tuple[float, float]:
    """Return the lengths of the box along the line and across it."""
    return math.dist(box[0], box[1]), math.dist(box[0], box[3])


def stands(box: Floats) -> bool:
    """Return whether an upright `box` is so much higher than wide that its line runs up or down."""
    width, height = extent(box)
    return height >= _STANDING * width


def is_long(box: Floats) -> bool:
    """Return whether the shape of a box leaves no doubt along which side its text runs: it is no lone character."""
    width, height = extent(box)
    return max(width, height) >= _LONG * min(width, height)


def cut(picture: Picture, box: Floats) -> Picture:
    """Return the line in `box`, upright, :data:`LINE_HEIGHT` pixels high and as wide as its bucket (or narrower).

    Pixels beyond the picture repeat its edge. High text is first cut at its own size and then averaged down: sampling
    alone would drop strokes.
    """
    length, height = (max(1.0, side) for side in extent(box))
    true_width = length * LINE_HEIGHT / height
    width = max(1, round(true_width)) if true_width < LINE_WIDTHS[0] else line_width(true_width)
    if height <= _TALL_TEXT:
        return _warped(picture, box, width, LINE_HEIGHT)
    whole = _warped(picture, box, round(length), round(height))
    return cv2.resize(whole, (width, LINE_HEIGHT), interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)


def _warped(picture: Picture, box: Floats, width: int, height: int) -> Picture:
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float32)
    transform: npt.NDArray[Any] = cv2.getPerspectiveTransform(box, corners)
    line = cv2.warpPerspective(
        picture, transform, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    return line.astype(np.uint8, copy=False)
