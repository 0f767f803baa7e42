from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddlewheel.errors import (
    CancelledByCallerError,
    DeadlineExceededError,
    InternalError,
    ModelLoadError,
    PaddlewheelError,
    UndecodableError,
)
from paddlewheel.inference import Answer, Signature, Tensor, TensorSpec
from paddlewheel.pipelines.spec import ModelSpec
from paddlewheel.workers import frames
from paddlewheel.workers.arena import Arena

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
parameters = st.dictionaries(text, plain, max_size=4)
tensors = st.lists(
    st.builds(
        Tensor,
        text,
        st.sampled_from(["FP32", "BYTES", "UINT8"]),
        st.lists(st.integers(0, 9), max_size=3).map(tuple),
        st.binary(max_size=200),
    ),
    max_size=4,
).map(tuple)
answers = st.builds(Answer, tensors, parameters, st.dictionaries(text, st.floats(0, 1e6), max_size=3))
errors = st.builds(
    lambda kind, detail, retry: kind(detail, retry_after_s=retry),
    st.sampled_from([CancelledByCallerError, DeadlineExceededError, InternalError, UndecodableError]),
    text,
    st.none() | st.floats(0, 100),
)


@pytest.fixture
def arena() -> Iterator[Arena]:
    """Return an arena."""
    arena = Arena.create(1 << 20)
    yield arena
    arena.close()


def body(frame: frames.Command | frames.Report) -> bytes:
    """Return the encoded frame without its length, after checking that."""
    encoded = frames.encode(frame)
    (length,) = frames.LENGTH.unpack(encoded[: frames.LENGTH.size])
    assert length == len(encoded) - frames.LENGTH.size
    return encoded[frames.LENGTH.size :]


def fields(error: PaddlewheelError) -> tuple[Any, ...]:
    """Return what an error is: errors are not compared by value."""
    return type(error), error.detail, error.retry_after_s


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(outcomes=st.lists(answers | errors, max_size=5))
def test_outcomes_come_back_as_they_were(arena: Arena, outcomes: list[Answer | PaddlewheelError]) -> None:
    """Answers with their tensors, parameters and times, and errors with class, text and time to retry, in order."""
    arena.reset()
    report = frames.decode_report(
        body(frames.Done(tuple(frames.frame_outcome(each, arena) for each in outcomes), 0.5, 7))
    )
    assert isinstance(report, frames.Done)
    assert report.rss_bytes == 7
    for sent, frame in zip(outcomes, report.outcomes, strict=True):
        got = frames.read_outcome(frame, arena)
        if isinstance(sent, PaddlewheelError):
            assert isinstance(got, PaddlewheelError)
            assert fields(got) == fields(sent)
        else:
            assert got == sent


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(inputs=tensors, given_parameters=parameters, deadline=st.none() | st.floats(0, 1e9))
def test_requests_come_over_as_they_were(
    arena: Arena, inputs: tuple[Tensor, ...], given_parameters: dict[str, Any], deadline: float | None
) -> None:
    """A batch's item has the tensors, parameters and deadline that it was sent with."""
    arena.reset()
    item = frames.ItemFrame("id", frames.stow(inputs, arena), given_parameters, deadline)
    command = frames.decode_command(body(frames.Run("model/1/0", 2, (item,))))
    assert isinstance(command, frames.Run)
    (got,) = command.items
    assert frames.unstow(got.inputs, arena, copy=True) == inputs
    assert (got.request_id, got.parameters, got.deadline) == ("id", given_parameters, deadline)
    assert (command.key, command.threads) == ("model/1/0", 2)


def test_a_load_and_its_reports() -> None:
    """A spec comes over whole; so do description and error."""
    spec = ModelSpec("m", "v", "ocr", "openvino", folder=Path("/packs/x"), threads=(1, 2), options={"a": [1]})
    command = frames.decode_command(body(frames.Load(spec)))
    assert command == frames.Load(spec)
    signature = Signature((TensorSpec("x", "FP32", (-1, 3)),), (TensorSpec("y", "BYTES", (-1,)),))
    loaded = frames.Loaded({"network": "bf16"}, signature)
    assert frames.decode_report(body(loaded)) == loaded
    failed = frames.Failed(ModelLoadError("file x").record())
    assert frames.decode_report(body(failed)) == failed


def test_not_a_number_comes_over() -> None:
    """NaN and infinity are values like others between processes."""
    done = frames.Done((frames.AnswerFrame((), {"x": math.nan, "y": math.inf}, {}),), 0.0, 0)
    report = frames.decode_report(body(done))
    assert isinstance(report, frames.Done)
    (answer,) = report.outcomes
    assert isinstance(answer, frames.AnswerFrame)
    assert math.isnan(answer.parameters["x"])
    assert answer.parameters["y"] == math.inf


def test_copies_outlive_the_arena_and_views_do_not_copy(arena: Arena) -> None:
    """What the front reads is its own; what the worker reads lies where it was written."""
    stowed = frames.stow((Tensor("x", "UINT8", (3,), b"abc"),), arena)
    (view,), (copy,) = frames.unstow(stowed, arena, copy=False), frames.unstow(stowed, arena, copy=True)
    arena.reset()
    arena.write(b"xyz")
    assert (bytes(view.data), copy.data) == (b"xyz", b"abc")


def test_an_answer_that_does_not_fit_is_its_own_error(arena: Arena) -> None:
    """Its batch mates' answers are not touched."""
    large = Answer((Tensor("x", "UINT8", (2 << 20,), bytes(2 << 20)),))
    small = Answer((Tensor("x", "UINT8", (1,), b"a"),))
    got = [frames.read_outcome(frames.frame_outcome(each, arena), arena) for each in (small, large, small)]
    assert (got[0], got[2]) == (small, small)
    assert isinstance(got[1], PaddlewheelError)
    assert got[1].http_status == 413


@pytest.mark.parametrize("garbage", [b"", b"\xc1", b"\x80", b"\x81\xa4type\xa4none"])
def test_what_is_no_frame_is_refused(garbage: bytes) -> None:
    """Nothing is made of bytes that are not a frame."""
    with pytest.raises(msgspec.MsgspecError):
        frames.decode_command(garbage)
    with pytest.raises(msgspec.MsgspecError):
        frames.decode_report(garbage)
