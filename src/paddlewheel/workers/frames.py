"""The messages between the front process and a worker, and their form on the socket.

A frame is a 4-byte little-endian length and that many bytes of MessagePack. Tensors travel beside it in an arena; a
frame holds where each one lies. Decoding is typed and builds plain data only.

    front                worker
      ── Load ───────────▶       one model, before the worker counts as ready
      ◀── Loaded | Failed ──
      ── Unload ─────────▶       one model that is not served any more
      ◀── Unloaded ───────
      ── Run ────────────▶       one batch; its tensors lie in the request arena
      ◀── Done ──────────       one outcome for each item, in order; tensors in the response arena
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from paddlewheel.errors import ErrorRecord, PaddlewheelError, from_record
from paddlewheel.inference import Answer, Signature, Tensor
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
    outputs: tuple[str, ...] = ()


class AnswerFrame(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """An answer on its way back."""

    outputs: tuple[TensorFrame, ...]
    parameters: dict[str, Any]
    timing_ms: dict[str, float]


class ErrorFrame(msgspec.Struct, frozen=True, array_like=True, tag="error"):
    """An item's own error on its way back."""

    error: ErrorRecord


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Load and warm up a version of a model."""

    spec: ModelSpec


class Unload(msgspec.Struct, frozen=True, tag="unload"):
    """Forget a version of a model, by its key."""

    key: str


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Run a batch on a version of a model, by its key."""

    key: str
    threads: int
    items: tuple[ItemFrame, ...]


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The model is loaded and warm."""

    description: dict[str, str]
    signature: Signature


class Unloaded(msgspec.Struct, frozen=True, tag="unloaded"):
    """The model is forgotten."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The model cannot be loaded."""

    error: ErrorRecord


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The batch has run."""

    outcomes: tuple[AnswerFrame | ErrorFrame, ...]
    run_s: float
    rss_bytes: int


Command = Load | Unload | Run
Report = Loaded | Unloaded | Failed | Done


def _from_path(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"{type(value)} does not go into a frame")


def _to_path(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(f"{kind} does not come out of a frame")


_encoder = msgspec.msgpack.Encoder(enc_hook=_from_path)
_command_decoder = msgspec.msgpack.Decoder(Command, dec_hook=_to_path)
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


def frame_outcome(outcome: Outcome, arena: Arena, outputs: Sequence[str] = ()) -> AnswerFrame | ErrorFrame:
    """Return `outcome` as a frame, its tensors in `arena`; an answer that does not fit becomes its own error.

    `outputs` are the names of the tensors that are wanted, in their order; all if there are none.
    """
    if isinstance(outcome, Answer):
        try:
            tensors = [outcome.output(name) for name in outputs] if outputs else outcome.outputs
            stowed = stow(tensors, arena)
        except PaddlewheelError as error:
            return ErrorFrame(error.record())
        return AnswerFrame(stowed, dict(outcome.parameters), dict(outcome.timing_ms))
    return ErrorFrame(outcome.record())


def read_outcome(frame: AnswerFrame | ErrorFrame, arena: Arena) -> Outcome:
    """Return the outcome that `frame` describes, its tensors copied out of `arena`."""
    if isinstance(frame, ErrorFrame):
        return from_record(frame.error)
    return Answer(unstow(frame.outputs, arena, copy=True), frame.parameters, frame.timing_ms)
