"""Sets vertical text, upright characters one below the other, side by side, so that a network for rows can read it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from paddlewheel.pipelines.ocr.buckets import LINE_HEIGHT
from paddlewheel.pipelines.ocr.crop import Picture, fitting

# Lengths of a character along its column, in pixels of the crop, whose height is the column's width.
_USUAL: Final = 0.9 * LINE_HEIGHT
_LONGEST: Final = 1.2 * LINE_HEIGHT


def recomposed(column: Picture) -> Picture:
    """Return as a row the characters of a column that was cut as if its text ran downwards.

    `column` is [LINE_HEIGHT, length, 3]: its left end is the column's top, its characters lie on their side.
    """
    grey = cv2.cvtColor(column, cv2.COLOR_BGR2GRAY)
    paper = np.median(column.reshape(-1, 3), axis=0)
    contrast = cv2.absdiff(grey, np.full_like(grey, np.median(grey)))
    _, ink = cv2.threshold(contrast, 0, 1, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    cells = [_cell(column[:, start:end], paper) for start, end in _characters(ink.sum(axis=0) > 1)]
    if not cells:
        return column
    row = np.concatenate(cells, axis=1)
    return cv2.resize(row, (fitting(row.shape[1]), LINE_HEIGHT)).astype(np.uint8, copy=False)


def _characters(inked: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the (start, end) of the characters along a column, from where there is ink.

    Parts of one character are joined as long as they are no longer than a character; longer runs are parted evenly.
    """
    edges = np.flatnonzero(np.diff(inked.astype(np.int8), prepend=0, append=0))
    joined: list[tuple[int, int]] = []
    for start, end in edges.reshape(-1, 2).tolist():
        if joined and end - joined[-1][0] <= _USUAL:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    for start, end in joined:
        parts = max(1, round((end - start) / LINE_HEIGHT)) if end - start > _LONGEST else 1
        bounds = np.linspace(start, end, parts + 1).astype(int).tolist()
        yield from itertools.pairwise(bounds)


def _cell(lying: Picture, paper: npt.NDArray[np.float64]) -> Picture:
    """Return a character, turned upright, in the middle of a square of `paper`."""
    upright = np.rot90(lying, -1)[:LINE_HEIGHT]
    cell = np.full((LINE_HEIGHT, LINE_HEIGHT, 3), paper, np.uint8)
    top = (LINE_HEIGHT - upright.shape[0]) // 2
    cell[top : top + upright.shape[0]] = upright
    return cell
