"""What a caller may set for one OCR call, checked before the request is queued and again where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddlewheel.errors import InvalidArgumentError

LEAST_SIDE: Final = 64
GREATEST_SIDE: Final = 4096


class OcrParameters(BaseModel):
    """The parameters of a call and their defaults. Values may be JSON values or their text in a query or form."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    det_limit_side: Annotated[int, Field(ge=LEAST_SIDE, le=GREATEST_SIDE)] | None = None
    """Longest side in pixels at which text is searched; left out, it follows from the picture and its text."""
    score_threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Lines read with less confidence are left out."""
    orientation: bool = True
    """Find out which way lines are turned; off, a line is read as it lies (one that stands, from top to bottom)."""
    boxes_only: bool = False
    """Find lines but do not read them."""
    text_only: bool = False
    """Leave boxes out of the answer."""


def parse_parameters(given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> OcrParameters:
    """Return the parameters of a call, `given` over the model's `defaults`.

    Raises :class:`InvalidArgumentError` that names the parameter, what it may be, and what was given.
    """
    try:
        parameters = OcrParameters.model_validate({**(defaults or {}), **given})
    except ValidationError as error:
        faults = [_sentence(fault["loc"], fault["input"]) for fault in error.errors()]
        raise InvalidArgumentError(" ".join(faults)) from error
    if parameters.boxes_only and parameters.text_only:
        raise InvalidArgumentError("Parameters 'boxes_only' and 'text_only' exclude each other; set one of them.")
    return parameters


def _sentence(location: tuple[int | str, ...], value: object) -> str:
    name = str(location[0])
    if name not in _EXPECTED:
        return f"There is no parameter '{name:.60}'; expected one of: {', '.join(_EXPECTED)}."
    return f"Parameter '{name}' is {value!r:.60}; expected {_EXPECTED[name]}."


_EXPECTED: Final = {
    "det_limit_side": f"a whole number from {LEAST_SIDE} to {GREATEST_SIDE}",
    "score_threshold": "a number from 0 to 1",
    "orientation": "true or false",
    "boxes_only": "true or false",
    "text_only": "true or false",
}
