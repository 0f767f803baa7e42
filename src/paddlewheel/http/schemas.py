"""The shapes of bodies, for the OpenAPI page; answers are written by the routes and checked against these in tests."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

Point = tuple[float, float]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class TextLine(_Body):
    """One line of text."""

    text: str
    score: float = Field(ge=0, le=1)
    box: tuple[Point, Point, Point, Point] | None = None
    """Corners in pixels of the picture as a person sees it, clockwise from the top left of the text; left out with
    `text_only`."""
    angle: float
    """Degrees by which the line was turned to be read."""


class OcrPage(_Body):
    """The text of a picture, in reading order. A blank page has the same keys and empty lists."""

    request_id: str
    model: str
    version: str
    mode: Literal["full", "lite"]
    cached: bool
    width: int
    height: int
    """Size of the picture as a person sees it (EXIF orientation applied)."""
    rotation: int
    """Degrees by which the page was turned to be read."""
    scale: float
    """Size at which text was searched, relative to the picture."""
    truncated: bool
    """Whether lines are missing because a page has more than the detector may return."""
    text: str
    """All lines, joined by line feeds."""
    lines: list[TextLine]
    warnings: list[str]
    timing_ms: dict[str, float]
    """Milliseconds in the queue, in each stage, and in all."""


class SubmittedCall(_Body):
    """A call that was taken and will be answered later."""

    request_id: str
    status: Literal["submitted"]
    status_url: str


class PendingCall(_Body):
    """A call that is not answered yet."""

    request_id: str
    status: Literal["queued", "running"]


class JobOrder(_Body):
    """A job to be made."""

    model: str
    version: str | None = None
    input: dict[str, Any]
    """`{"image": "<base64>"}` for OCR, `{"inputs": [...], "outputs": [...]}` as in the Open Inference Protocol else."""
    parameters: dict[str, Any] = {}
    """Of the call."""
    priority: int = Field(1, ge=1, le=9)
    """Among jobs; 1 is the highest."""
    deadline_s: float | None = Field(None, gt=0, le=7 * 86400)
    """In how many seconds it must be done."""
    ttl_s: float | None = Field(None, gt=0, le=30 * 86400)
    """How long its result can be fetched."""
    max_attempts: int | None = Field(None, ge=1, le=20)
    metadata: dict[str, str | int | float | bool | None] = {}
    """Comes back with the job."""


class Problem(_Body):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    retryable: bool


PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"model": Problem, "description": "The request is wrong."},
    503: {"model": Problem, "description": "Overloaded or not ready; `Retry-After` says when to try again."},
    504: {"model": Problem, "description": "The deadline passed."},
}

_PARAMETERS: Final = {
    "det_limit_side": {"type": "integer", "description": "Longest side in pixels at which text is searched."},
    "score_threshold": {"type": "number", "description": "Lines with a lower score are left out."},
    "orientation": {"type": "boolean", "description": "Find out which way lines are turned."},
    "boxes_only": {"type": "boolean", "description": "Find lines, do not read them."},
    "text_only": {"type": "boolean", "description": "Leave the boxes out."},
}

PICTURE_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["image"],
                    "properties": {"image": {"type": "string", "format": "binary"}, **_PARAMETERS},
                }
            },
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "image": {"type": "string", "description": "base64 or a data: URI"},
                        "url": {"type": "string", "description": "instead, where fetching is switched on"},
                        **_PARAMETERS,
                    },
                }
            },
            "image/*": {"schema": {"type": "string", "format": "binary"}},
        },
    },
    "parameters": [
        {
            "name": "X-Request-Timeout",
            "in": "header",
            "schema": {"type": "number"},
            "description": "Deadline in seconds; a request that cannot make it is refused at once.",
        },
        *({"name": name, "in": "query", "schema": schema} for name, schema in _PARAMETERS.items()),
    ],
}
