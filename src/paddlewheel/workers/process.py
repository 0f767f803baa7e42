"""One worker process, seen from the front: start it, load models, run a batch, notice when it ends.

A batch is one round trip: tensors into the request arena, a frame over the socket, a frame back, tensors copied out of
the response arena. A process that ends or takes too long raises :class:`WorkerEndedError`; what becomes of its batch
is the scheduler's decision, and what becomes of its place is the pool's.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from typing import Any, Literal

import msgspec
import structlog

from paddlewheel.errors import from_record
from paddlewheel.inference import InferenceRequest
from paddlewheel.pipelines.pipeline import Outcome
from paddlewheel.pipelines.spec import ModelSpec
from paddlewheel.workers import child, frames, preload
from paddlewheel.workers.arena import Arena

ARENA_BYTES = 1 << 30
EndReason = Literal["crash", "hang", "memory", "load", "stop"]

_log = structlog.stdlib.get_logger(__name__)
_context = multiprocessing.get_context("forkserver")
# Starting a process talks to the fork server and blocks; one thread keeps the starts in order.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="start-worker")


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a batch: an outcome for each request, in order, and where the time went, in seconds."""

    outcomes: list[Outcome]
    input_s: float
    run_s: float
    output_s: float


class WorkerEndedError(Exception):
    """The process ended, or was killed because it hung, before it reported."""


@contextmanager
def fork_server(engines: Iterable[str]) -> Iterator[None]:
    """Run the process that workers are forked from, with `engines` imported; where it runs already, that one serves.

    Who started it kills it at the end, even while it still imports, and with it every worker.
    """
    server: Any = forkserver._forkserver  # noqa: SLF001  # there is no public way to end it
    ours = server._forkserver_pid is None  # noqa: SLF001
    os.environ[preload.ENGINES_VARIABLE] = " ".join(sorted(set(engines)))
    _context.set_forkserver_preload([preload.__name__])
    forkserver.ensure_running()
    try:
        yield
    finally:
        if ours and server._forkserver_pid is not None:  # noqa: SLF001
            os.kill(server._forkserver_pid, signal.SIGKILL)  # noqa: SLF001
            server._stop()  # noqa: SLF001


class _Channel(asyncio.Protocol):
    """The front's end of the channel: cuts what comes into frames, and notices the end."""

    def __init__(self, on_report: Callable[[bytes], None]) -> None:
        self._on_report = on_report
        self._received = bytearray()
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._received += data
        size = frames.LENGTH.size
        while len(self._received) >= size:
            end = size + frames.LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                break
            report = bytes(self._received[size:end])
            del self._received[:end]
            self._on_report(report)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # why does not matter
        self.closed.set()


class WorkerProcess:
    """A worker. It does one thing at a time: its owner awaits a call before it makes the next."""

    def __init__(self, setup: child.Setup, *, hang_timeout_s: float, on_end: Callable[[WorkerProcess], None]) -> None:
        self._setup = setup
        self._hang_timeout_s = hang_timeout_s
        self._on_end = on_end
        self.models: set[str] = set()
        """The keys of what it has loaded."""
        self.rss_bytes = 0
        self.ended = asyncio.Event()
        self.end_reason: EndReason = "crash"
        self._report: asyncio.Future[frames.Report] | None = None
        self._clearing_up: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Fork the process and open the channel to it.

        The channel holds the arenas' descriptors before the process exists: if the start is given up half way, the
        process finds them, then the end of the channel, and ends.
        """
        ours, theirs = socket.socketpair()
        self._requests, self._responses = Arena.create(ARENA_BYTES), Arena.create(ARENA_BYTES)
        socket.send_fds(ours, [b"\0"], [self._requests.descriptor, self._responses.descriptor])
        arguments = (theirs, self._requests.capacity, self._setup)
        self._process: BaseProcess = _context.Process(target=child.main, args=arguments, daemon=True)
        started = _starter.submit(self._process.start)
        started.add_done_callback(lambda _: theirs.close())
        try:
            await asyncio.wrap_future(started)
            loop = asyncio.get_running_loop()
            self._transport, self._channel = await loop.create_unix_connection(
                lambda: _Channel(self._on_report), sock=ours
            )
        except BaseException as error:
            ours.close()
            self._requests.close()
            self._responses.close()
            if isinstance(error, (OSError, EOFError)):
                raise WorkerEndedError(f"The fork server did not start a worker: {error!r}.") from error
            raise
        self._clearing_up = asyncio.create_task(self._clear_up())

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    async def load(self, spec: ModelSpec, timeout_s: float) -> frames.Loaded:
        """Load and warm up a version of a model; raises its own :class:`PaddlewheelError`."""
        report = await self._call(frames.Load(spec), timeout_s)
        if isinstance(report, frames.Failed):
            raise from_record(report.error)
        assert isinstance(report, frames.Loaded)
        self.models.add(spec.key)
        return report

    async def unload(self, key: str) -> None:
        """Forget the version of a model that has this key."""
        self.models.discard(key)
        await self._call(frames.Unload(key), self._hang_timeout_s)

    async def run(self, key: str, batch: Sequence[InferenceRequest], threads: int) -> Ran:
        """Run `batch` on the version of a model that has this key.

        Raises :class:`PayloadTooLargeError` if its tensors do not fit into the arena together.
        """
        began = time.perf_counter()
        self._requests.reset()
        items = tuple(
            frames.ItemFrame(
                each.id, frames.stow(each.inputs, self._requests), dict(each.parameters), each.deadline, each.outputs
            )
            for each in batch
        )
        sent = time.perf_counter()
        report = await self._call(frames.Run(key, threads, items), self._hang_timeout_s)
        assert isinstance(report, frames.Done)
        received = time.perf_counter()
        self.rss_bytes = report.rss_bytes
        outcomes = [frames.read_outcome(each, self._responses) for each in report.outcomes]
        return Ran(outcomes, sent - began, report.run_s, time.perf_counter() - received)

    def abandon(self, index: int) -> None:
        """Tell the worker that nobody waits for item `index` of the running batch."""
        if not self.ended.is_set():
            self._requests.abandon(index)

    def kill(self, reason: EndReason) -> None:
        """End the process at once; a call that is under way raises :class:`WorkerEndedError`."""
        self.end_reason = reason
        if self._clearing_up is not None:
            self._process.kill()

    async def stop(self) -> None:
        """Hang up, so that the process ends after what it does now, and wait until it has."""
        self.end_reason = "stop"
        if self._clearing_up is not None:
            self._transport.close()
            await asyncio.wait([self._clearing_up])

    async def _call(self, command: frames.Command, timeout_s: float) -> frames.Report:
        if self.ended.is_set():
            raise WorkerEndedError(f"Worker {self.pid} has ended.")
        loop = asyncio.get_running_loop()
        report: asyncio.Future[frames.Report] = loop.create_future()
        self._report = report
        self._transport.write(frames.encode(command))
        hang = loop.call_later(timeout_s, self.kill, "hang")
        try:
            return await report
        except asyncio.CancelledError:
            # It would report to nobody, and its next owner would take that for the answer.
            self.kill("stop")
            raise
        finally:
            hang.cancel()
            report.cancel()

    def _on_report(self, data: bytes) -> None:
        """Hand a report to the call that waits for it."""
        try:
            report = frames.decode_report(data)
        except msgspec.MsgspecError:
            _log.exception("a worker sent what is no report", pid=self.pid)
            self._process.kill()
            return
        if self._report is not None and not self._report.done():
            self._report.set_result(report)

    async def _clear_up(self) -> None:
        """When the process has ended, give back what it had, and tell who waits for it."""
        await self._channel.closed.wait()
        await asyncio.to_thread(self._process.join)
        self._requests.close()
        self._responses.close()
        self.ended.set()
        self._on_end(self)
        if self._report is not None and not self._report.done():
            self._report.set_exception(WorkerEndedError(f"Worker {self.pid} ended: {self._describe_end()}."))

    def _describe_end(self) -> str:
        if self.end_reason == "hang":
            return f"it was killed because it did not report within {self._hang_timeout_s:g} s"
        status = self._process.exitcode
        if status is not None and status < 0:
            return f"it was killed by {signal.Signals(-status).name}"
        return f"it exited with status {status}"
