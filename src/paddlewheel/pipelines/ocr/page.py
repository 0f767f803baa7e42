"""What is known of one picture while it goes through the stages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from paddlewheel.errors import PaddlewheelError
from paddlewheel.pipelines.image import DecodedPicture
from paddlewheel.pipelines.ocr.crop import Floats, Picture, turned
from paddlewheel.pipelines.ocr.detection import Detection
from paddlewheel.pipelines.ocr.orientation import Turn
from paddlewheel.pipelines.ocr.parameters import OcrParameters
from paddlewheel.pipelines.ocr.recognition import UNREAD, Reading
from paddlewheel.pipelines.pipeline import Item

STAGES: Final = ("decode", "detection", "orientation", "recognition")


@dataclass(slots=True)
class Line:
    """A line: its upright box, how it lies, its crop, and its reading, which is set when it is read."""

    box: Floats
    box_score: float
    turn: Turn
    crop: Picture
    reading: Reading = UNREAD

    @property
    def box_as_read(self) -> Floats:
        """The box with its corners clockwise from the top left of the text as it is read."""
        return turned(self.box, self.turn.quarters)


@dataclass(slots=True)
class Page:
    """One item of a batch. Once `failure` is set, no stage spends time on it."""

    item: Item
    failure: PaddlewheelError | None = None
    parameters: OcrParameters = field(default_factory=OcrParameters)
    picture: DecodedPicture | None = None
    detection: Detection | None = None
    lines: list[Line] = field(default_factory=list)
    timing_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))

    def wanted(self) -> bool:
        """Return whether this page is worth more work; a caller who is gone or too late becomes its failure."""
        if self.failure is None:
            try:
                self.item.check_wanted()
            except PaddlewheelError as error:
                self.failure = error
        return self.failure is None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block as stage `name`, and keep an error that the caller may see as this page's own."""
        began = time.perf_counter()
        try:
            yield
        except PaddlewheelError as error:
            self.failure = error
        finally:
            self.timing_ms[name] += (time.perf_counter() - began) * 1000
