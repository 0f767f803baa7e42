"""The sizes that networks are run with: few enough for an engine to keep, close enough to waste little.

A size comes from the picture or the line alone, never from what shares its batch, so that an answer does not depend on
its company. Pure arithmetic.
"""

from __future__ import annotations

import bisect
import math
from typing import Final

LINE_HEIGHT: Final = 48
"""Height in pixels of a line as the recognition and orientation networks take it."""

LINE_WIDTHS: Final[tuple[int, ...]] = (
    *range(160, 256, 16),
    *range(256, 512, 32),
    *range(512, 1024, 64),
    *range(1024, 2048, 128),
    *range(2048, 4096, 256),
    *range(4096, 8193, 512),
)
"""Widths of recognition batches: eight to an octave.

Measured on 388 drawn lines in small, blurred and noisy print: stretched to the nearest of eight steps an octave, 387
are right with PP-OCRv6 small, 375 with tiny (spaces apart); padded to at least 320, 386 and 371, for a fourth more
pixels. Of 335 drawn texts of one or two characters, padded to 64, 160 and 320, small reads 309, 310 and 305 and tiny
295, 300 and 313: hence no bucket below 160, and no stretching there.
"""

_STRIDE: Final = 32


def line_width(width: float) -> int:
    """Return the bucket nearest to the `width` that a line has at its true proportions.

    A line stretches or shrinks to it, by 7 % at most; one narrower than the least bucket does not fill it, and one
    wider than the greatest is squeezed.
    """
    after = bisect.bisect_left(LINE_WIDTHS, width)
    if after in (0, len(LINE_WIDTHS)):
        return LINE_WIDTHS[min(after, len(LINE_WIDTHS) - 1)]
    below, above = LINE_WIDTHS[after - 1], LINE_WIDTHS[after]
    return below if width * width < below * above else above


def detection_side(length: float) -> int:
    """Return the nearest side that the detection network is run with.

    The network halves its input five times: sides are multiples of 32, of 64 above 512 and of 128 above 1024, which
    stretches a picture by 7 % at most once it is 256 pixels long.
    """
    step = _STRIDE if length <= 512 else 2 * _STRIDE if length <= 1024 else 4 * _STRIDE
    return max(_STRIDE, math.floor(length / step + 0.5) * step)
