"""Decides which way lines are turned.

A picture's lines lie in one of four ways; nearly always all the same. The shapes of the boxes tell rows from standing
lines, and a small classifier that tells upright from upside down is asked about the longest few lines of each kind.
Single lines that turn out to read badly get a second look (:mod:`~paddlewheel.pipelines.ocr.second_look`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from paddlewheel.engines.predictor import Predictor
from paddlewheel.pipelines.ocr.buckets import LINE_HEIGHT
from paddlewheel.pipelines.ocr.crop import Floats, Picture, cut, extent, is_long, stands, turned
from paddlewheel.pipelines.ocr.recognition import stacked

_WIDTH: Final = 192
_VOTERS: Final = 5
_CERTAIN: Final = 0.9


class OrientationClassifier:
    """The network that tells upright lines from those upside down."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self._input = predictor.inputs[0].name
        self._output = predictor.outputs[0].name

    def warm_up(self, threads: int) -> None:
        """Run the network for every number of lines that is asked about."""
        for count in range(1, _VOTERS + 1):
            self.upside_down([np.zeros((LINE_HEIGHT, _WIDTH, 3), np.uint8)] * count, threads)

    def upside_down(self, lines: Sequence[Picture], threads: int | None = None) -> Floats:
        """Return for each crop the probability [n] that it is upside down, judged by its first characters."""
        planes = stacked([line[:, :_WIDTH] for line in lines], _WIDTH)
        return self.predictor.run({self._input: planes}, threads)[self._output][:, 1]


@dataclass(frozen=True, slots=True)
class Turn:
    """How a line lies: quarter turns clockwise, and how sure that is (1 where nothing was asked)."""

    quarters: int
    score: float = 1.0


def as_they_lie(boxes: Floats) -> list[Turn]:
    """Return the turns without any classifier: rows are upright, standing lines run from top to bottom."""
    return [Turn(int(stands(box))) for box in boxes]


def vote(classifier: OrientationClassifier, picture: Picture, boxes: Floats, threads: int | None = None) -> list[Turn]:
    """Return the turns of a picture's lines, by its longest rows and its longest standing lines.

    Boxes about as wide as high go with the kind that has more text. Vertical text, upright characters one below the
    other, counts as standing lines: the recognition network reads it turned.
    """
    standing = _standing(boxes)
    turns = [Turn(0)] * len(boxes)
    for quarters in (0, 1):
        members = [index for index, stood in enumerate(standing) if stood == bool(quarters)]
        if not members:
            continue
        longest = sorted(members, key=lambda index: (-max(extent(boxes[index])), index))[:_VOTERS]
        lines = [cut(picture, turned(boxes[index], quarters)) for index in longest]
        turned_over = float(classifier.upside_down(lines, threads).mean())
        turn = Turn(quarters + 2, turned_over) if turned_over > _CERTAIN else Turn(quarters, 1 - turned_over)
        for index in members:
            turns[index] = turn
    return turns


def _standing(boxes: Floats) -> list[bool]:
    """Return for each box whether its line stands; what could be a lone character follows the length of the others."""
    balance = 0.0
    for box in boxes:
        if stands(box):
            balance += max(extent(box))
        elif stands(turned(box, 1)):
            balance -= max(extent(box))
    return [stands(box) if is_long(box) else balance > 0 for box in boxes]
