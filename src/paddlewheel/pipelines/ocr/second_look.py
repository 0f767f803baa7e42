"""Other ways to read a line that read badly: upside down, or along the other side of its box."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from paddlewheel.pipelines.ocr.crop import cut, is_long, turned
from paddlewheel.pipelines.ocr.orientation import OrientationClassifier, Turn
from paddlewheel.pipelines.ocr.page import Line, Page

_WEAK: Final = 0.8
_LIKELY: Final = 0.5
_CLEARLY: Final = 0.1


@dataclass(frozen=True, slots=True)
class Trial:
    """Another way to read the line at `index` of a page."""

    page: Page
    index: int
    line: Line

    def settle(self) -> None:
        """Let the other way replace the first if it reads clearly better."""
        if self.line.reading.score > self.page.lines[self.index].reading.score + _CLEARLY:
            self.page.lines[self.index] = self.line


def trials(page: Page, classifier: OrientationClassifier, threads: int | None = None) -> Iterator[Trial]:
    """Yield other ways to read those lines of a page that read badly."""
    weak = [index for index, line in enumerate(page.lines) if line.reading.score < _WEAK]
    if not weak or page.picture is None:
        return
    over = classifier.upside_down([page.lines[index].crop for index in weak], threads)
    for index, probability in zip(weak, over.tolist(), strict=True):
        line = page.lines[index]
        ways = [Turn((line.turn.quarters + 2) % 4, probability)] if probability > _LIKELY else []
        if not is_long(line.box):
            ways.append(Turn((line.turn.quarters + 1) % 2, 0.5))
        for turn in ways:
            crop = cut(page.picture.pixels, turned(line.box, turn.quarters))
            yield Trial(page, index, replace(line, turn=turn, crop=crop))
