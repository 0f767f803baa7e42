"""Puts lines into the order in which a person reads them.

Rows from top to bottom, and within a row along it; "top" is that of the text, so a page upside down or on its side is
read like an upright one, and vertical columns from right to left. Columns of a layout are not separated: a form's label
and value stand in one row, and that cannot be told from two columns of prose by boxes alone. Pure geometry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from paddlewheel.pipelines.ocr.crop import Floats

_SAME_ROW: Final = 0.5
_STRAIGHT: Final = 0.003
"""Radians within which a box counts as found straight."""


@dataclass(slots=True)
class _Row:
    """Lines beside each other; `middle` and `height` are means over its members."""

    middle: float
    height: float
    members: list[int] = field(default_factory=list)

    def add(self, index: int, middle: float, height: float) -> None:
        self.members.append(index)
        weight = 1 / len(self.members)
        self.middle += (middle - self.middle) * weight
        self.height += (height - self.height) * weight


@dataclass(slots=True)
class _Rows:
    """A way to part lines into rows: the members of each, and where along its row each line starts."""

    members: list[list[int]]
    starts: Floats

    def __len__(self) -> int:
        return len(self.members)

    def order(self) -> list[int]:
        return [
            index for row in self.members for index in sorted(row, key=lambda member: (self.starts[member], member))
        ]


def reading_order(boxes: Floats) -> list[int]:
    """Return the indices of `boxes` [n, 4, 2] (first edge along the text) in reading order.

    Lines are in one row if their middles, seen along the text's own slope, differ by less than half the smaller height.
    Equal places are kept in the order of the input.
    """
    if len(boxes) == 0:
        return []
    readings = [_rows(boxes, along) for along in _directions(boxes)]
    return min(readings, key=len).order()


def _rows(boxes: Floats, along: npt.NDArray[np.float64]) -> _Rows:
    """Return the rows of `boxes` if the text runs `along`."""
    across = np.array([-along[1], along[0]])
    positions = boxes.mean(axis=1) @ np.stack([along, across], axis=1)
    starts = (boxes @ along).min(axis=1)
    spans = boxes @ across
    heights = np.minimum(spans.max(axis=1) - spans.min(axis=1), np.linalg.norm(boxes[:, 3] - boxes[:, 0], axis=1))
    rows: list[_Row] = []
    for index in np.argsort(positions[:, 1], kind="stable").tolist():
        middle, height = float(positions[index, 1]), float(heights[index])
        row = rows[-1] if rows else None
        if row is None or middle - row.middle > _SAME_ROW * min(height, row.height):
            row = _Row(middle, height)
            rows.append(row)
        row.add(index, middle, height)
    return _Rows([row.members for row in rows], starts)


def _directions(boxes: Floats) -> list[npt.NDArray[np.float64]]:
    """Return the unit vectors along which the text may run, the likelier first; the one that makes fewer rows is right.

    The quarter of the circle that holds most length wins; within it the median slope of the text, weighted by length,
    is the page's skew. Boxes of a few characters are often found straight on a tilted page, so the median of those that
    are not is another candidate.
    """
    edges = (boxes[:, 1] - boxes[:, 0]).astype(np.float64)
    lengths = np.linalg.norm(edges, axis=1)
    angles = np.arctan2(edges[:, 1], edges[:, 0])
    quarters = np.round(angles / (np.pi / 2)).astype(int) % 4
    winner = int(np.argmax(np.bincount(quarters, weights=lengths, minlength=4)))
    chosen = quarters == winner
    slopes = (angles[chosen] - winner * np.pi / 2 + np.pi) % (2 * np.pi) - np.pi
    medians = [_median(slopes, lengths[chosen])]
    tilted = np.abs(slopes) > _STRAIGHT
    if tilted.any() and not tilted.all():
        medians.append(_median(slopes[tilted], lengths[chosen][tilted]))
    angles_along = winner * np.pi / 2 + np.array(medians)
    return list(np.stack([np.cos(angles_along), np.sin(angles_along)], axis=1))


def _median(values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> float:
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    return float(values[order][int(np.searchsorted(sums, sums[-1] / 2))])
