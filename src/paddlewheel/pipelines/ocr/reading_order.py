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


def reading_order(boxes: Floats) -> list[int]:
    """Return the indices of `boxes` [n, 4, 2] (first edge along the text) in reading order.

    Lines are in one row if their middles, seen along the text's own slope, differ by less than half the smaller height.
    Equal places are kept in the order of the input.
    """
    if len(boxes) == 0:
        return []
    along = _direction(boxes)
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
    return [index for row in rows for index in sorted(row.members, key=lambda member: (starts[member], member))]


def _direction(boxes: Floats) -> npt.NDArray[np.float64]:
    """Return the unit vector along most of the text.

    The quarter of the circle that holds most length wins; within it the median slope of the text, weighted by length,
    is the page's skew. Long lines tell a slope better than short ones.
    """
    edges = (boxes[:, 1] - boxes[:, 0]).astype(np.float64)
    lengths = np.linalg.norm(edges, axis=1)
    angles = np.arctan2(edges[:, 1], edges[:, 0])
    quarters = np.round(angles / (np.pi / 2)).astype(int) % 4
    winner = int(np.argmax(np.bincount(quarters, weights=lengths, minlength=4)))
    chosen = quarters == winner
    slopes = (angles[chosen] - winner * np.pi / 2 + np.pi) % (2 * np.pi) - np.pi
    order = np.argsort(slopes, kind="stable")
    weights = np.cumsum(lengths[chosen][order])
    median = slopes[order][int(np.searchsorted(weights, weights[-1] / 2))]
    angle = winner * np.pi / 2 + float(median)
    return np.array([np.cos(angle), np.sin(angle)])
