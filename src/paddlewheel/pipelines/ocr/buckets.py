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
    *range(320, 641, 64),
    *range(768, 1281, 128),
    *range(1536, 2561, 256),
    *range(3072, 5121, 512),
    *range(6144, 8193, 1024),
)
"""Widths of recognition batches. Narrower than 320 the network loses spaces; each step wastes a fifth at most."""

_STRIDE: Final = 32


def line_width(width: int) -> int:
    """Return the narrowest bucket that holds a line of `width` pixels, or the widest bucket there is."""
    return LINE_WIDTHS[min(bisect.bisect_left(LINE_WIDTHS, width), len(LINE_WIDTHS) - 1)]


def detection_side(length: float) -> int:
    """Return the nearest side that the detection network is run with.

    The network halves its input five times: sides are multiples of 32, of 64 above 512 and of 128 above 1024, which
    stretches a picture by 6 % at most once it is 256 pixels long.
    """
    step = _STRIDE if length <= 512 else 2 * _STRIDE if length <= 1024 else 4 * _STRIDE
    return max(_STRIDE, math.floor(length / step + 0.5) * step)
