"""The loop of a worker process: take a command from the front process, do it, report.

The process is forked from a fork server that has the engine libraries imported, so it starts in milliseconds. It runs
one batch at a time on one thread (engines use more of their own). It ends when the front process closes the socket,
and the kernel ends it when the front process dies, even in the middle of a batch: no worker outlives its server.
It inherits that SIGTERM and SIGINT are blocked: the front process drains then, and needs its workers for that.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from paddlewheel import pipelines
from paddlewheel.errors import InternalError, PaddlewheelError
from paddlewheel.pipelines.pipeline import Item, Outcome, Pipeline
from paddlewheel.pipelines.spec import ModelSpec
from paddlewheel.telemetry.logs import configure_logs
from paddlewheel.workers import frames
from paddlewheel.workers.arena import Arena

_PR_SET_PDEATHSIG = 1
_MEASURE_AFTER_S = 0.1
_M_MMAP_THRESHOLD = -3
_LEAST_MAPPED_BYTES = 1 << 20
_REHEARSAL = "rehearsal"
_log = structlog.stdlib.get_logger("paddlewheel.worker")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker process sets up before it takes commands."""

    nice: int = 0
    log_level: str = "info"
    log_format: str = "auto"


def main(channel: socket.socket, arena_bytes: int, setup: Setup) -> None:
    """Serve the front process at the other end of `channel` until it hangs up."""
    end_with_parent()
    # Large blocks go back to the system when they are freed: under changing shapes a worker stays 200 MB smaller.
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LEAST_MAPPED_BYTES)
    os.nice(setup.nice)
    configure_logs(setup.log_level, setup.log_format)
    _, descriptors, _, _ = socket.recv_fds(channel, 1, 2)
    requests, responses = (Arena(descriptor, arena_bytes) for descriptor in descriptors)
    worker = _Worker(requests, responses)
    with channel.makefile("rb") as stream:
        while header := stream.read(frames.LENGTH.size):
            command = frames.decode_command(stream.read(*frames.LENGTH.unpack(header)))
            channel.sendall(frames.encode(worker.obey(command)))


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Worker:
    def __init__(self, requests: Arena, responses: Arena) -> None:
        self._requests = requests
        self._responses = responses
        self._pipelines: dict[str, Pipeline] = {}
        self._resident_bytes, self._measured_at = 0, 0.0

    def obey(self, command: frames.Command) -> frames.Report:
        match command:
            case frames.Load():
                return self._load(command)
            case frames.Unload():
                self._pipelines.pop(command.key, None)
                return frames.Unloaded()
            case frames.Run():
                return self._run(command)

    def _load(self, command: frames.Load) -> frames.Report:
        spec = command.spec
        try:
            pipeline = pipelines.build(spec)
            pipeline.warm_up(spec.threads)
            self._pipelines[spec.key] = pipeline
            self._rehearse(spec, pipeline)
        except PaddlewheelError as error:
            return frames.Failed(error.record())
        except Exception:  # a fault of ours, or of an engine: the worker lives on
            _log.exception("model cannot be loaded", model=spec.name)
            return frames.Failed(InternalError(f"Model '{spec.name}' cannot be loaded; see the log.").record())
        return frames.Loaded(pipeline.describe(), pipeline.signature)

    def _rehearse(self, spec: ModelSpec, pipeline: Pipeline) -> None:
        """Answer a call to nobody, the way it would come and go: what is done once is then done before the first."""
        sample = pipeline.sample()
        for threads in spec.threads if sample else ():
            self._requests.reset()
            item = frames.ItemFrame(_REHEARSAL, frames.stow(sample, self._requests), {}, None)
            frame = frames.encode(frames.Run(spec.key, threads, (item,)))
            report = self.obey(frames.decode_command(frame[frames.LENGTH.size :]))
            frames.decode_report(frames.encode(report)[frames.LENGTH.size :])

    def _run(self, command: frames.Run) -> frames.Done:
        items = [
            Item(
                item.request_id,
                frames.unstow(item.inputs, self._requests, copy=False),
                item.parameters,
                item.deadline,
                partial(self._requests.abandoned, index),
            )
            for index, item in enumerate(command.items)
        ]
        began = time.perf_counter()
        outcomes = run_each_at_worst(self._pipelines[command.key], items, command.threads)
        run_s = time.perf_counter() - began
        self._responses.reset()
        framed = tuple(
            frames.frame_outcome(outcome, self._responses, item.outputs)
            for outcome, item in zip(outcomes, command.items, strict=True)
        )
        return frames.Done(framed, run_s, self._memory())

    def _memory(self) -> int:
        """Return the resident bytes as they were a short while ago: looking costs as much as a small batch."""
        now = time.monotonic()
        if now - self._measured_at > _MEASURE_AFTER_S:
            self._resident_bytes, self._measured_at = _resident_bytes(), now
        return self._resident_bytes


def run_each_at_worst(pipeline: Pipeline, items: Sequence[Item], threads: int) -> list[Outcome]:
    """Run `items` as one batch; if that fails as a whole, run them one by one, so that only the guilty one fails."""
    try:
        return _run_batch(pipeline, items, threads)
    except Exception as error:  # whatever a model raises is its own failure
        if len(items) == 1:
            return [_outcome_of(error, items[0])]
    return [outcome for item in items for outcome in run_each_at_worst(pipeline, [item], threads)]


def _run_batch(pipeline: Pipeline, items: Sequence[Item], threads: int) -> list[Outcome]:
    outcomes = pipeline.run(items, threads)
    if len(outcomes) != len(items):
        raise RuntimeError(f"{type(pipeline).__name__} returned {len(outcomes)} outcomes for {len(items)} items")
    return outcomes


def _outcome_of(error: Exception, item: Item) -> PaddlewheelError:
    if isinstance(error, PaddlewheelError):
        return error
    _log.error("request failed in the model", request_id=item.request_id, exc_info=error)
    return InternalError("The model failed on this request; the server's log has the reason under its request id.")


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 (read after every batch: no Path object)
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
