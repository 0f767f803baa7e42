"""The messages between the front process and a worker, and their form on the socket.

A frame is a 4-byte little-endian length and that many bytes of MessagePack. Tensors travel beside it in an arena; a
frame holds where each one lies. Decoding is typed and builds plain data only.

    front                worker
      ── Load ───────────▶       one model, before the worker counts as ready
      ◀── Loaded | Failed ──
      ── Run ────────────▶       one batch; its tensors lie in the request arena
      ◀── Done ──────────       one outcome for each item, in order; tensors in the response arena
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from paddlewheel.errors import ErrorRecord, PaddlewheelError, from_record
from paddlewheel.inference import Answer, Tensor
from paddlewheel.pipelines.pipeline import Outcome
from paddlewheel.pipelines.spec import ModelSpec
from paddlewheel.workers.arena import Arena

LENGTH = struct.Struct("<I")


class TensorFrame(msgspec.Struct, frozen=True, array_like=True):
    """A tensor whose bytes lie in an arena."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    offset: int
    length: int


class ItemFrame(msgspec.Struct, frozen=True, array_like=True):
    """A request on its way to a worker."""

    request_id: str
    inputs: tuple[TensorFrame, ...]
    parameters: dict[str, Any]
    deadline: float | None


class AnswerFrame(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """An answer on its way back."""

    outputs: tuple[TensorFrame, ...]
    parameters: dict[str, Any]
    timing_ms: dict[str, float]


class ErrorFrame(msgspec.Struct, frozen=True, array_like=True, tag="error"):
    """An item's own error on its way back."""

    error: ErrorRecord


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Load and warm up a model."""

    spec: ModelSpec


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Run a batch."""

    model: str
    threads: int
    items: tuple[ItemFrame, ...]


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The model is loaded and warm."""

    description: dict[str, str]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The model cannot be loaded."""

    error: ErrorRecord


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The batch has run."""

    outcomes: tuple[AnswerFrame | ErrorFrame, ...]
    rss_bytes: int


Command = Load | Run
Report = Loaded | Failed | Done

_encoder = msgspec.msgpack.Encoder()
_command_decoder = msgspec.msgpack.Decoder(Command)
_report_decoder = msgspec.msgpack.Decoder(Report)


def encode(frame: Command | Report) -> bytes:
    """Return `frame` with its length in front."""
    body = _encoder.encode(frame)
    return LENGTH.pack(len(body)) + body


def decode_command(body: bytes) -> Command:
    """Return the frame that the front process sent."""
    command: Command = _command_decoder.decode(body)
    return command


def decode_report(body: bytes) -> Report:
    """Return the frame that a worker sent."""
    report: Report = _report_decoder.decode(body)
    return report


def stow(tensors: Sequence[Tensor], arena: Arena) -> tuple[TensorFrame, ...]:
    """Copy `tensors` into `arena` and return where they lie."""
    return tuple(
        TensorFrame(each.name, each.datatype, each.shape, arena.write(each.data), memoryview(each.data).nbytes)
        for each in tensors
    )


def unstow(frames: Sequence[TensorFrame], arena: Arena, *, copy: bool) -> tuple[Tensor, ...]:
    """Return the tensors that lie in `arena`, as views or, for use after the next batch, as copies."""
    return tuple(
        Tensor(each.name, each.datatype, each.shape, bytes(view) if copy else view)
        for each in frames
        for view in [arena.read(each.offset, each.length)]
    )


def frame_outcome(outcome: Outcome, arena: Arena) -> AnswerFrame | ErrorFrame:
    """Return `outcome` as a frame, its tensors in `arena`; an answer that does not fit becomes its own error."""
    if isinstance(outcome, Answer):
        try:
            outputs = stow(outcome.outputs, arena)
        except PaddlewheelError as error:
            return ErrorFrame(error.record())
        return AnswerFrame(outputs, dict(outcome.parameters), dict(outcome.timing_ms))
    return ErrorFrame(outcome.record())


def read_outcome(frame: AnswerFrame | ErrorFrame, arena: Arena) -> Outcome:
    """Return the outcome that `frame` describes, its tensors copied out of `arena`."""
    if isinstance(frame, ErrorFrame):
        return from_record(frame.error)
    return Answer(unstow(frame.outputs, arena, copy=True), frame.parameters, frame.timing_ms)
