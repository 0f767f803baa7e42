"""Finds lines of text: a picture in, boxes out.

The network gives each pixel a probability of being text (DB, arXiv:1911.08947); its regions become rectangles. The
picture is reduced first, as most text is found at a fraction of its size; where the text found is too small for that,
the picture is searched again, larger. Does not know orientation: boxes are upright.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from paddlewheel.catalog.pack import DetectionSettings
from paddlewheel.engines.predictor import Predictor
from paddlewheel.pipelines.ocr.buckets import detection_side
from paddlewheel.pipelines.ocr.crop import Floats, Picture

# Measured on drawn pages (both PP-OCRv6 networks): every line of 8 pixels and more is found, fewer below 7. The map is
# coarse, so that boxes of such lines come out at 8 to 13 pixels.
_TOO_SMALL: Final = 11.0
_FIRST_AREA: Final = 270_000
_FIRST_REDUCTION: Final = 2.5
_GREATEST_FIRST_AREA: Final = 1_200_000
_GREATEST_AREA: Final = 4_200_000
_GREATEST_SCALE: Final = 2.0
# A picture in which nothing was found is searched again only if it was reduced by more than this.
_WORTH_A_LOOK: Final = 0.4
_LEAST_REGION: Final = 3.0
_LEAST_BOX: Final = 5.0
_LEAST_PICTURE: Final = 4
_SHORT_SIDE: Final = 64
_MARGIN: Final = 16
_USUAL_PICTURES: Final = (
    (1000, 1000),
    *((1024, 768), (1024, 683), (1280, 720)),
    *((768, 1024), (683, 1024), (720, 1280), (1240, 1754)),
)
MOST_BOXES: Final = 5000


@dataclass(frozen=True, slots=True)
class Detection:
    """Boxes [n, 4, 2] in pixels of the picture, upright and clockwise from the top left, with their scores [n].

    `scale` is the size at which the picture was searched, as a fraction of its own; `text_too_small` says that there
    may be more at a greater one; `truncated` that only the first :data:`MOST_BOXES` are here.
    """

    boxes: Floats
    scores: Floats
    scale: float
    text_too_small: bool = False
    truncated: bool = False


class TextDetector:
    """The detection network and how its map is read."""

    def __init__(self, predictor: Predictor, settings: DetectionSettings) -> None:
        self.predictor = predictor
        self._settings = settings
        self._input = predictor.inputs[0].name
        self._output = predictor.outputs[0].name
        self._gain = [1 / (255 * std) for std in settings.std]
        self._offset = [-mean / std for mean, std in zip(settings.mean, settings.std, strict=True)]

    def warm_up(self, threads: int) -> None:
        """Run the network for usual pictures, as large as they are searched first.

        At the sizes of greater pictures, what a new shape costs is little against the run.
        """
        for width, height in _USUAL_PICTURES:
            scale = next(scales(width, height))
            sides = detection_side(height * scale), detection_side(width * scale)
            self.predictor.run({self._input: np.zeros((1, 3, *sides), np.float32)}, threads)

    def find(self, picture: Picture, side_limit: int | None = None, threads: int | None = None) -> Detection:
        """Return the lines of a BGR `picture`, searched once at `side_limit` if given, else as large as needed."""
        height, width = picture.shape[:2]
        found = Detection(np.empty((0, 4, 2), np.float32), np.empty(0, np.float32), 1.0)
        if min(height, width) < _LEAST_PICTURE:
            return found
        for scale in scales(width, height, side_limit):
            found = self.search(picture, scale, threads)
            if not found.text_too_small or (len(found.boxes) == 0 and scale > _WORTH_A_LOOK):
                break
        return found

    def search(self, picture: Picture, scale: float, threads: int | None = None) -> Detection:
        """Return the lines found in `picture` at `scale`."""
        margins = [_margin(side, scale) for side in picture.shape[1::-1]]
        picture = _bordered(picture, *margins)
        height, width = picture.shape[:2]
        size = detection_side(width * scale), detection_side(height * scale)
        shrinks = size[0] * size[1] < width * height
        resized = cv2.resize(picture, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
        probability = self.predictor.run({self._input: self._normalised(resized)}, threads)[self._output][0, 0]
        regions = sorted(read_map(probability, self._settings), key=lambda region: region.box[:, 1].min())
        kept = regions[:MOST_BOXES]
        boxes = np.array([region.box for region in kept], np.float32).reshape(-1, 4, 2)
        boxes = boxes * np.array([width / size[0], height / size[1]], np.float32) - np.array(margins, np.float32)
        return Detection(
            boxes=np.array([_upright(box) for box in boxes], np.float32).reshape(-1, 4, 2),
            scores=np.array([region.score for region in kept], np.float32),
            scale=scale,
            text_too_small=_too_small([region.height for region in regions]),
            truncated=len(regions) > MOST_BOXES,
        )

    def _normalised(self, picture: npt.NDArray[Any]) -> Floats:
        planes = np.empty((1, 3, *picture.shape[:2]), np.float32)
        for channel, (gain, offset) in enumerate(zip(self._gain, self._offset, strict=True)):
            plane = planes[0, channel]
            np.multiply(picture[:, :, channel], np.float32(gain), out=plane)
            plane += np.float32(offset)
        return planes


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle [4, 2] of the map, its lesser side in pixels, and its mean probability."""

    box: Floats
    height: float
    score: float


def scales(width: int, height: int, side_limit: int | None = None) -> Iterator[float]:
    """Yield the sizes at which to search a picture, each as a fraction of its own size, until the text is large enough.

    The first is the least that finds usual text; each next one doubles the sides, up to twice the picture's own or a
    limit of memory. With `side_limit` there is one.
    """
    if side_limit is not None:
        yield min(1.0, side_limit / max(width, height))
        return
    area = width * height
    first = min(max(_FIRST_AREA, area / _FIRST_REDUCTION**2), _GREATEST_FIRST_AREA)
    greatest = min(_GREATEST_SCALE, math.sqrt(_GREATEST_AREA / area))
    scale = min(1.0, math.sqrt(first / area))
    yield scale
    while scale * 1.2 < greatest:
        scale = min(scale * 2, greatest)
        yield scale


def _margin(side: int, scale: float) -> int:
    """Return by how many pixels a picture is extended where a `side` is so short that text may touch both edges.

    In a strip as high as its text the network sees none.
    """
    return round(_MARGIN / scale) if side * scale < _SHORT_SIDE else 0


def _bordered(picture: Picture, beside: int, above: int) -> Picture:
    if not beside and not above:
        return picture
    extended = cv2.copyMakeBorder(picture, above, above, beside, beside, cv2.BORDER_REPLICATE)
    return extended.astype(np.uint8, copy=False)


def read_map(probability: Floats, settings: DetectionSettings) -> Iterator[Region]:
    """Yield the regions of text in a map [height, width]."""
    mask = (probability > settings.threshold).astype(np.uint8)
    if settings.dilation:
        mask = cv2.dilate(mask, np.ones((2, 2), np.uint8)).astype(np.uint8, copy=False)
    contours, hierarchy = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    for contour, (_, _, _, parent) in zip(contours, hierarchy[0] if contours else (), strict=True):
        if parent >= 0:
            continue  # the rim of a hole
        centre, (width, height), angle = cv2.minAreaRect(contour)
        if min(width, height) < _LEAST_REGION:
            continue
        score = _mean_within(probability, cv2.boxPoints((centre, (width, height), angle)).astype(np.float32))
        # The network is trained on shrunken regions. The rectangle around a rectangle's offset is the rectangle with
        # each side moved out by as much, so no polygon needs to be clipped.
        grown = 2 * settings.unclip_ratio * width * height / (2 * (width + height))
        lesser = min(width, height) + grown
        if score >= settings.box_threshold and lesser >= _LEAST_BOX:
            box = cv2.boxPoints((centre, (width + grown, height + grown), angle))
            yield Region(box.astype(np.float32), lesser, score)


def _mean_within(probability: Floats, box: Floats) -> float:
    height, width = probability.shape
    left, top = np.clip(np.floor(box.min(axis=0)), 0, (width - 1, height - 1)).astype(int)
    right, bottom = np.clip(np.ceil(box.max(axis=0)), 0, (width - 1, height - 1)).astype(int)
    inside = np.zeros((bottom - top + 1, right - left + 1), np.uint8)
    cv2.fillPoly(inside, [(box - (left, top)).astype(np.int32)], (1,))
    return cv2.mean(probability[top : bottom + 1, left : right + 1], inside)[0]


def _too_small(heights: list[float]) -> bool:
    """Return whether a tenth of the text is about as small as can be found, or none was found at all."""
    return not heights or sorted(heights)[len(heights) // 10] <= _TOO_SMALL


def _upright(box: Floats) -> Floats:
    """Return the corners clockwise, beginning with the one whose next edge points most to the right."""
    edges = np.roll(box, -1, axis=0) - box
    return np.roll(box, -int(np.argmax(edges[:, 0] - np.abs(edges[:, 1]))), axis=0)
