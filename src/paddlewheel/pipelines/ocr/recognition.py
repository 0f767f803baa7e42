"""Reads lines: crops in, text with confidence out.

Crops of any number of pictures share a batch if they share a width bucket. Text is the network's own, code point by
code point: nothing is trimmed or normalised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from paddlewheel.engines.predictor import Predictor
from paddlewheel.errors import ModelLoadError
from paddlewheel.pipelines.ocr.buckets import LINE_HEIGHT, LINE_WIDTHS, line_width
from paddlewheel.pipelines.ocr.crop import Floats, Picture

# On a CPU a line costs the same alone and among many (on two cores, narrow ones a sixth less among four), and a wide
# batch costs memory; a GPU is idle with few lines.
_BATCH_WIDTH_CPU: Final = 1280
_BATCH_WIDTH_GPU: Final = 16 * 640
_STEP: Final = 4
_USUAL_WIDTH: Final = 1408
_BLANK: Final = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """The text of a line and the mean probability of its characters (0 for no text)."""

    text: str
    score: float


UNREAD: Final = Reading("", 0.0)


class TextRecogniser:
    """The recognition network and its characters."""

    def __init__(self, predictor: Predictor, dictionary: Sequence[str]) -> None:
        self.predictor = predictor
        self._input = predictor.inputs[0].name
        self._output = predictor.outputs[0].name
        self.batch_width = _BATCH_WIDTH_CPU if predictor.device.startswith("cpu") else _BATCH_WIDTH_GPU
        self._characters = _characters(dictionary, self._classes())

    def warm_up(self, threads: int) -> None:
        """Run the network for every batch of usual lines: a shape costs two or three runs more when it is new."""
        for width in LINE_WIDTHS:
            for size in batch_sizes(width, self.batch_width) if width <= _USUAL_WIDTH else ():
                self._run(np.zeros((size, 3, LINE_HEIGHT, width), np.float32), threads)

    def read(self, lines: Sequence[Picture], threads: int | None = None) -> list[Reading]:
        """Return the readings of crops of one bucket (see :func:`batches`), in order."""
        width = line_width(max(line.shape[1] for line in lines))
        return self._decoded(self._run(stacked(lines, width), threads))

    def _run(self, planes: Floats, threads: int | None = None) -> Floats:
        return self.predictor.run({self._input: planes}, threads)[self._output]

    def _classes(self) -> int:
        """Return how many characters the network tells apart; one that does not say so is run once."""
        classes = self.predictor.outputs[0].shape[-1:]
        if classes and classes[0] > 0:
            return classes[0]
        return int(self._run(np.zeros((1, 3, LINE_HEIGHT, LINE_WIDTHS[0]), np.float32)).shape[-1])

    def _decoded(self, probabilities: Floats) -> list[Reading]:
        """Return the best path of each line (CTC): repeats are one character, blanks part them.

        `probabilities` is [lines, steps, classes].
        """
        best = probabilities.argmax(axis=2)
        certainty = np.take_along_axis(probabilities, best[:, :, None], axis=2)[:, :, 0]
        before = np.pad(best[:, :-1], ((0, 0), (1, 0)), constant_values=_BLANK)
        kept = (best != _BLANK) & (best != before)
        return [
            Reading(
                "".join(self._characters[index] for index in row[chosen]),
                float(scores[chosen].mean()) if chosen.any() else 0.0,
            )
            for row, chosen, scores in zip(best, kept, certainty, strict=True)
        ]


def batch_sizes(width: int, batch_width: int) -> list[int]:
    """Return how many lines of a bucket share a batch, the most first: powers of four, so that shapes are few.

    Several fit into `batch_width` pixels together.
    """
    sizes = [1]
    while sizes[-1] * _STEP * width <= batch_width:
        sizes.append(sizes[-1] * _STEP)
    return sizes[::-1]


def batches(widths: Sequence[int], batch_width: int) -> Iterator[list[int]]:
    """Yield the indices of lines of `widths` by bucket, in order, in the largest of :func:`batch_sizes`."""
    buckets: defaultdict[int, list[int]] = defaultdict(list)
    for index, width in enumerate(widths):
        buckets[line_width(width)].append(index)
    for width, members in sorted(buckets.items()):
        start = 0
        for size in batch_sizes(width, batch_width):
            while len(members) - start >= size:
                yield members[start : start + size]
                start += size


def stacked(lines: Sequence[Picture], width: int) -> Floats:
    """Return crops as a batch [n, 3, height, width] of values from -1 to 1; what a crop leaves free is 0."""
    planes = np.zeros((len(lines), 3, LINE_HEIGHT, width), np.float32)
    for plane, line in zip(planes, lines, strict=True):
        target = plane[:, :, : line.shape[1]]
        np.multiply(line.transpose(2, 0, 1), np.float32(1 / 127.5), out=target)
        target -= np.float32(1)
    return planes


def _characters(dictionary: Sequence[str], classes: int) -> tuple[str, ...]:
    """Return the text of each class: a blank, the dictionary, and in most networks a space."""
    for characters in (("", *dictionary, " "), ("", *dictionary)):
        if len(characters) == classes:
            return characters
    raise ModelLoadError(
        f"The dictionary has {len(dictionary)} characters, the recognition network tells {classes} classes apart; "
        f"expected {classes - 1} or {classes - 2} characters (a blank and perhaps a space are added). Pull the pack "
        "again, or use the dictionary that belongs to the network."
    )
