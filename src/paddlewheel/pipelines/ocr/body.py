"""The answer of the OCR pipeline as people and their programs read it: the body of ``POST /ocr``, one JSON object."""

from __future__ import annotations

from typing import Any, Final

from paddlewheel.inference import InferenceResponse

_MODE: Final = "full"


def page_body(response: InferenceResponse) -> dict[str, Any]:
    """Return `response` as plain data; coordinates are pixels of the picture as a person sees it."""
    answer = response.answer
    texts = answer.output("text").strings()
    scores = answer.output("score").numpy().tolist()
    boxes = answer.output("box").numpy().tolist()
    angles = answer.output("angle").numpy().tolist()
    lines: list[dict[str, Any]] = [
        {"text": text, "score": round(score, 4), "angle": angle}
        for text, score, angle in zip(texts, scores, angles, strict=True)
    ]
    # Without boxes (`text_only`) there is nothing to put in.
    for line, box in zip(lines, boxes, strict=False):
        line["box"] = box
    return {
        "request_id": response.request_id,
        "model": response.model,
        "version": response.version,
        "mode": _MODE,
        "cached": False,
        **answer.parameters,
        "text": "\n".join(texts),
        "lines": lines,
        "timing_ms": dict(answer.timing_ms),
    }
