"""The OCR pipeline: encoded pictures in, lines of text out.

    items ─ decode ─ detection ─ orientation ─┐              one page at a time
                                              ├─ recognition  lines of all pages together, by width
                                second look ──┘
    pages ─ reading order ─ answers

Pages are searched one by one: batching gains nothing there on a CPU, and a box must not move with its company. A page
that fails, or that nobody waits for, leaves between stages, and its lines leave the shared batches.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import cv2
import numpy as np

from paddlewheel.errors import InternalError, InvalidArgumentError
from paddlewheel.inference import Signature, Tensor
from paddlewheel.pipelines import image
from paddlewheel.pipelines.ocr.answer import SIGNATURE, answer
from paddlewheel.pipelines.ocr.crop import cut, turned
from paddlewheel.pipelines.ocr.detection import TextDetector
from paddlewheel.pipelines.ocr.orientation import OrientationClassifier, as_they_lie, vote
from paddlewheel.pipelines.ocr.page import Line, Page
from paddlewheel.pipelines.ocr.parameters import parse_parameters
from paddlewheel.pipelines.ocr.recognition import TextRecogniser, batches
from paddlewheel.pipelines.ocr.second_look import Trial, trials
from paddlewheel.pipelines.pipeline import Item, Outcome

_SAMPLE_SIZE: Final = (416, 640, 3)
_SAMPLE_LINES: Final = 3
_SAMPLE_MARGIN: Final = 60
_PAPER: Final = 255


class OcrPipeline:
    """Detection, orientation and recognition as one model."""

    def __init__(
        self,
        *,
        detection: TextDetector,
        orientation: OrientationClassifier,
        recognition: TextRecogniser,
        defaults: Mapping[str, Any],
        max_pixels: int,
    ) -> None:
        parse_parameters(defaults)
        self._detection = detection
        self._orientation = orientation
        self._recognition = recognition
        self._defaults = dict(defaults)
        self._max_pixels = max_pixels

    @property
    def signature(self) -> Signature:
        """One picture in; for each line of text, one element of each output (see :mod:`..ocr.answer`)."""
        return SIGNATURE

    def describe(self) -> dict[str, str]:
        """Return the precision and device of each network."""
        networks = {
            "detection": self._detection.predictor,
            "orientation": self._orientation.predictor,
            "recognition": self._recognition.predictor,
        }
        return {role: f"{predictor.precision} on {predictor.device}" for role, predictor in networks.items()}

    def warm_up(self, thread_counts: Sequence[int]) -> None:
        """Run each network for its usual shapes, as for a call that is alone: that takes a second.

        Calls that are not alone wait for each other anyhow; there a shape may cost its 20 ms when it first comes.
        """
        threads = thread_counts[-1]
        self._detection.warm_up(threads)
        self._orientation.warm_up(threads)
        self._recognition.warm_up(threads)

    def sample(self) -> tuple[Tensor, ...]:
        """Return a picture with a few lines of print."""
        picture = np.full(_SAMPLE_SIZE, _PAPER, np.uint8)
        for row in range(_SAMPLE_LINES):
            place = (_SAMPLE_MARGIN, _SAMPLE_MARGIN * (row + 2))
            cv2.putText(picture, "paddlewheel " * (row + 1), place, cv2.FONT_HERSHEY_SIMPLEX, 1.0, (0, 0, 0), 2)
        return (Tensor.from_elements("image", [cv2.imencode(".jpg", picture)[1].tobytes()]),)

    def run(self, batch: Sequence[Item], threads: int | None = None) -> list[Outcome]:
        """Return an answer or an error for each picture, in order."""
        pages = [Page(item) for item in batch]
        for page in pages:
            self._prepare(page, threads)
        readers = [page for page in pages if not page.parameters.boxes_only]
        self._read([(page, line) for page in readers for line in page.lines], threads)
        trials = [trial for page in readers for trial in self._trials(page, threads)]
        self._read([(trial.page, trial.line) for trial in trials], threads)
        for trial in trials:
            trial.settle()
        return [_outcome(page) for page in pages]

    def _prepare(self, page: Page, threads: int | None) -> None:
        """Decode a page, find its lines and which way they lie."""
        with page.stage("decode"):
            page.parameters = parse_parameters(page.item.parameters, self._defaults)
            page.picture = image.decode(_encoded(page.item), self._max_pixels)
        if not page.wanted() or page.picture is None:
            return
        with page.stage("detection"):
            page.detection = self._detection.find(page.picture.pixels, page.parameters.det_limit_side, threads)
        if not page.wanted() or page.detection is None:
            return
        with page.stage("orientation"):
            boxes, pixels = page.detection.boxes, page.picture.pixels
            asked = page.parameters.orientation
            turns = vote(self._orientation, pixels, boxes, threads) if asked else as_they_lie(boxes)
            page.lines = [
                Line(box, score, turn, cut(pixels, turned(box, turn.quarters)))
                for box, score, turn in zip(boxes, page.detection.scores.tolist(), turns, strict=True)
            ]

    def _trials(self, page: Page, threads: int | None) -> list[Trial]:
        """Return other ways to read a page's lines, if it is worth it."""
        found: list[Trial] = []
        if page.parameters.orientation and page.wanted():
            with page.stage("orientation"):
                found.extend(trials(page, self._orientation, threads))
        return found

    def _read(self, lines: Sequence[tuple[Page, Line]], threads: int | None) -> None:
        """Read lines of many pages together; a page that is not wanted any more takes its lines along."""
        for batch in batches([line.crop.shape[1] for _, line in lines], self._recognition.batch_width):
            wanted = [lines[index] for index in batch if lines[index][0].wanted()]
            if not wanted:
                continue
            began = time.perf_counter()
            readings = self._recognition.read([line.crop for _, line in wanted], threads)
            share_ms = (time.perf_counter() - began) * 1000 / len(wanted)
            for (page, line), reading in zip(wanted, readings, strict=True):
                line.reading = reading
                page.timing_ms["recognition"] += share_ms


def _encoded(item: Item) -> memoryview:
    """Return the encoded picture of an item."""
    if [tensor.name for tensor in item.inputs] != ["image"]:
        names = ", ".join(f"'{tensor.name}'" for tensor in item.inputs) or "none"
        raise InvalidArgumentError(f"The inputs are {names}; expected one, 'image'.")
    elements = item.inputs[0].elements()
    if len(elements) != 1:
        raise InvalidArgumentError(f"Input 'image' has {len(elements)} elements; expected 1, an encoded picture.")
    return elements[0]


def _outcome(page: Page) -> Outcome:
    if page.wanted() and page.picture is not None and page.detection is not None:
        return answer(page, page.picture, page.detection)
    return page.failure or InternalError("The picture was not read.")
