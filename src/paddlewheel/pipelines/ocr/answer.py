"""Makes a page's answer: legible lines in reading order, as tensors, and what the caller should know about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from paddlewheel.inference import BYTES, Answer, Signature, Tensor, TensorSpec
from paddlewheel.pipelines.image import DecodedPicture
from paddlewheel.pipelines.ocr.crop import Floats, extent
from paddlewheel.pipelines.ocr.detection import MOST_BOXES, Detection
from paddlewheel.pipelines.ocr.page import Line, Page
from paddlewheel.pipelines.ocr.parameters import OcrParameters
from paddlewheel.pipelines.ocr.reading_order import reading_order

_LEAST_HEIGHT: Final = 8
"""Pixels of height that a line must have where it is searched for; see detection."""
_MUCH_REDUCED: Final = 0.3
_REDUCED: Final = 0.5
"""A picture reduced to less is warned of where small text was found, or nothing."""

SIGNATURE: Final = Signature(
    inputs=(TensorSpec("image", BYTES, (1,)),),
    outputs=(
        TensorSpec("text", BYTES, (-1,)),
        TensorSpec("score", "FP32", (-1,)),
        TensorSpec("box", "FP32", (-1, 4, 2)),
        TensorSpec("box_score", "FP32", (-1,)),
        TensorSpec("angle", "INT32", (-1,)),
        TensorSpec("angle_score", "FP32", (-1,)),
    ),
)


def answer(page: Page, picture: DecodedPicture, detection: Detection) -> Answer:
    """Return the answer for a page that went through all stages.

    Outputs, one element a line: `text`; `score`, the mean probability of its characters (of the box, with
    `boxes_only`); `box`, pixels [4, 2] of the displayed picture, clockwise from the top left of the text as it is read
    (none with `text_only`); `box_score`; `angle`, the degrees clockwise by which the line lies turned and was turned
    back; `angle_score`, how sure that is.
    """
    shown = [line for line in page.lines if _is_shown(line, page.parameters)]
    lines = [shown[index] for index in reading_order(_boxes([line.box_as_read for line in shown]))]
    corners = _boxes([] if page.parameters.text_only else [line.box_as_read for line in lines])
    scores = [line.box_score if page.parameters.boxes_only else line.reading.score for line in lines]
    return Answer(
        outputs=(
            Tensor.from_strings("text", [line.reading.text for line in lines]),
            Tensor.from_numpy("score", np.array(scores, np.float32)),
            Tensor.from_numpy("box", np.clip(corners, 0, np.array([picture.width, picture.height], np.float32))),
            Tensor.from_numpy("box_score", np.array([line.box_score for line in lines], np.float32)),
            Tensor.from_numpy("angle", np.array([90 * line.turn.quarters for line in lines], np.int32)),
            Tensor.from_numpy("angle_score", np.array([line.turn.score for line in lines], np.float32)),
        ),
        parameters={
            "width": picture.width,
            "height": picture.height,
            "warnings": [*picture.warnings, *_warnings(detection)],
            "scale": round(detection.scale, 4),
            "rotation": _rotation(lines),
            "truncated": detection.truncated,
        },
        timing_ms=dict(page.timing_ms),
    )


def _is_shown(line: Line, parameters: OcrParameters) -> bool:
    if parameters.boxes_only:
        return True
    return line.reading.text.strip() != "" and line.reading.score >= parameters.score_threshold


def _boxes(boxes: Sequence[Floats]) -> Floats:
    return np.array(boxes, np.float32).reshape(-1, 4, 2)


def _rotation(lines: Sequence[Line]) -> int:
    """Return the degrees clockwise by which most of the text, by length, lies turned."""
    lengths = np.zeros(4)
    for line in lines:
        lengths[line.turn.quarters] += max(extent(line.box))
    return 90 * int(lengths.argmax())


def _warnings(detection: Detection) -> Iterator[str]:
    if detection.truncated:
        yield f"More than {MOST_BOXES} lines were found; the answer holds the topmost {MOST_BOXES}."
    if detection.scale < (_REDUCED if detection.text_too_small else _MUCH_REDUCED):
        yield (
            f"The picture was searched at {detection.scale:.0%} of its size: text lower than "
            f"{_LEAST_HEIGHT / detection.scale:.0f} pixels may be missing. Set det_limit_side to search it larger."
        )
