import math
from typing import Any

import pytest

from paddlewheel.errors import InvalidArgumentError
from paddlewheel.pipelines.ocr.parameters import OcrParameters, parse_parameters


def test_nothing_given_means_the_defaults() -> None:
    """A call without parameters reads with the documented defaults."""
    assert parse_parameters({}) == OcrParameters(
        det_limit_side=None, score_threshold=0.5, orientation=True, boxes_only=False, text_only=False
    )


def test_the_call_overrides_the_model() -> None:
    """A model's own defaults hold where the call says nothing."""
    parameters = parse_parameters({"score_threshold": 0.9}, {"score_threshold": 0.1, "det_limit_side": 960})
    assert (parameters.score_threshold, parameters.det_limit_side) == (0.9, 960)


def test_text_of_a_query_or_form_is_understood() -> None:
    """Query strings and form fields come as text."""
    parameters = parse_parameters({"det_limit_side": "1280", "score_threshold": "0.25", "orientation": "false"})
    assert parameters == OcrParameters(det_limit_side=1280, score_threshold=0.25, orientation=False)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("det_limit_side", 63, "64 to 4096"),
        ("det_limit_side", 4097, "64 to 4096"),
        ("det_limit_side", 640.5, "whole number"),
        ("det_limit_side", "wide", "whole number"),
        ("score_threshold", -0.1, "0 to 1"),
        ("score_threshold", 1.1, "0 to 1"),
        ("score_threshold", math.nan, "0 to 1"),
        ("orientation", "maybe", "true or false"),
        ("boxes_only", [], "true or false"),
        ("text_only", None, "true or false"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(name: str, value: Any, expected: str) -> None:
    """The error names the parameter, the value given and the values there are."""
    with pytest.raises(InvalidArgumentError) as caught:
        parse_parameters({name: value})
    assert f"'{name}'" in caught.value.detail
    assert repr(value) in caught.value.detail
    assert expected in caught.value.detail


def test_an_unknown_name_is_refused() -> None:
    """A misspelt parameter is an error that lists the right names, not silently ignored."""
    with pytest.raises(InvalidArgumentError, match=r"'det_limit'.*det_limit_side, score_threshold"):
        parse_parameters({"det_limit": 640})


def test_boxes_only_and_text_only_exclude_each_other() -> None:
    """Asking for both would leave nothing."""
    with pytest.raises(InvalidArgumentError, match=r"'boxes_only' and 'text_only'"):
        parse_parameters({"boxes_only": True, "text_only": True})
