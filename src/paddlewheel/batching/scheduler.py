"""Gives ready batches to idle workers: one scheduler for each pool.

Whenever a request is queued or a worker becomes idle, the ready batch whose head has the highest priority, and among
those has waited longest, goes to an idle worker. A batch is ready when it has its preferred size, when its head has
waited for the queue delay, or at once where no delay is set.

A worker that ends takes its batch with it: each request is then tried once more, alone, so that a request that kills
its worker is found and fails by itself. So it is with a batch that cannot be handed to a worker.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Self

import structlog

from paddlewheel.batching.request_queue import QueuedRequest
from paddlewheel.batching.served_version import ServedVersion
from paddlewheel.errors import InternalError, PaddlewheelError, WorkerCrashedError
from paddlewheel.inference import Answer, InferenceRequest
from paddlewheel.pipelines.pipeline import Outcome
from paddlewheel.telemetry.metrics import Metrics
from paddlewheel.workers import ProcessPool, Ran, WorkerEndedError, WorkerProcess

_LONGEST_RETRY_AFTER_S = 60

_log = structlog.stdlib.get_logger(__name__)


class Scheduler:
    """Runs the queues of one pool; start and stop it with ``async with``."""

    def __init__(self, pool: ProcessPool, metrics: Metrics) -> None:
        self.pool = pool
        self._versions: set[ServedVersion] = set()
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None
        """When the queues are looked at next: in this round of the loop, or when a batch will be ready."""
        self._ended = asyncio.Event()
        """Set whenever a request may have left its queue or its worker."""
        self._batches: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Begin to dispatch."""
        self.pool.on_change = self._wake
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop dispatching; batches that run are dropped, their callers have been answered or told."""
        self.pool.on_change = lambda: None
        for handle in (self._soon, self._later):
            if handle is not None:
                handle.cancel()
        for task in self._batches:
            task.cancel()
        await asyncio.gather(*self._batches, return_exceptions=True)

    def add(self, version: ServedVersion) -> None:
        """Run the queue of `version` from now on."""
        self._versions.add(version)
        self._metrics.queue_depth.labels(*version.labels).set_function(lambda: len(version.queue))
        self._metrics.running.labels(*version.labels).set_function(lambda: version.running)

    async def remove(self, version: ServedVersion) -> None:
        """Stop running the queue of `version` as soon as nothing is in it or runs any more."""
        while len(version.queue) or version.running:
            self._ended.clear()
            await self._ended.wait()
        self._versions.discard(version)

    def submit(self, version: ServedVersion, requests: Sequence[InferenceRequest]) -> list[QueuedRequest]:
        """Queue `requests`, all or none; raises :class:`ResourceExhaustedError` when the queue is full."""
        now = time.monotonic()
        version.queue.check_room(len(requests), self.retry_after_s(version))
        queued = []
        for request in requests:
            answer: asyncio.Future[Answer] = self._loop.create_future()
            each = QueuedRequest(request, version.bucket_of(request), now, answer, version.rows_of(request))
            version.queue.put(each)
            answer.add_done_callback(self._on_answer)
            queued.append(each)
        self._wake()
        return queued

    def wait_s(self, version: ServedVersion) -> float:
        """Return how long a request that is queued now will wait, by the measured pace."""
        ahead = len(version.queue) + version.running - self.pool.workers + 1
        return version.pace.wait_s(max(ahead, 0), self.pool.workers)

    def expected_s(self, version: ServedVersion) -> float:
        """Return how long a request that is queued now will take in all, by the measured pace."""
        return self.wait_s(version) + version.pace.wait_s(1, 1)

    def retry_after_s(self, version: ServedVersion) -> float:
        """Return when it is worth trying again: half of what waits now should be done by then, in whole seconds."""
        return min(max(math.ceil(self.wait_s(version) / 2), 1), _LONGEST_RETRY_AFTER_S)

    def _wake(self) -> None:
        """Look at the queues when what arrives together has arrived."""
        if self._soon is None:
            self._soon = self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._soon = None
        if self._later is not None:
            self._later.cancel()
            self._later = None
        next_ready = self._dispatch_ready()
        if next_ready is not None:
            self._later = self._loop.call_later(max(next_ready - time.monotonic(), 0), self._dispatch)

    def _dispatch_ready(self) -> float | None:
        """Give every ready batch that an idle worker can take to one; return when the next will be ready."""
        while True:
            candidates = [
                (head.request.priority, head.enqueued_at, version.ready_at(head), version, head)
                for version in self._versions
                if (head := version.queue.head()) is not None and self.pool.has_idle(version.spec.key)
            ]
            now = time.monotonic()
            ready = [candidate for candidate in candidates if candidate[2] <= now]
            if not ready:
                return min((candidate[2] for candidate in candidates), default=None)
            *_, version, head = min(ready, key=lambda candidate: candidate[:2])
            batch = version.queue.take(self._limit(version, head), now)
            if batch:
                self._start(version, batch)

    def _limit(self, version: ServedVersion, head: QueuedRequest) -> int:
        """Return the most rows for the next batch, which starts with `head`.

        Without a queue delay nobody asked for large batches: the waiting requests are shared out over the workers, so
        that a burst does not go to one worker while the others stand idle.
        """
        most = version.max_batch_size
        if version.batching.max_queue_delay_microseconds:
            return most
        workers = max(self.pool.workers, 1)
        return math.ceil(version.queue.waiting_like(head, most * workers) / workers)

    def _start(self, version: ServedVersion, batch: list[QueuedRequest]) -> None:
        worker = self.pool.take_idle(version.spec.key)
        for index, queued in enumerate(batch):
            queued.dispatched_at = time.monotonic()
            queued.on_leave(partial(worker.abandon, index))
            waited_s = queued.dispatched_at - queued.enqueued_at
            version.statistics.queue.add(waited_s)
            self._metrics.queue_wait_seconds.labels(*version.labels).observe(waited_s)
        self._metrics.batch_size.labels(*version.labels).observe(sum(queued.rows for queued in batch))
        task = asyncio.create_task(self._run(version, worker, batch))
        self._batches.add(task)
        task.add_done_callback(self._batches.discard)

    async def _run(self, version: ServedVersion, worker: WorkerProcess, batch: list[QueuedRequest]) -> None:
        version.running += len(batch)
        started = time.monotonic()
        try:
            ran = await worker.run(version.spec.key, [queued.request for queued in batch], self._threads(version))
        except WorkerEndedError as error:
            _log.warning(
                "a worker ended with its batch", model=version.spec.name, requests=len(batch), reason=str(error)
            )
            detail = "Two workers that ran the request ended before it was done; it is not tried again."
            self._run_alone(version, batch, WorkerCrashedError(detail))
        except PaddlewheelError as error:
            self._run_alone(version, batch, error)
        except Exception:  # a fault of ours must not leave callers without an answer
            _log.exception("a batch failed outside of the model", model=version.spec.name)
            self._run_alone(version, batch, InternalError("The server failed on this request; its log has the reason."))
        else:
            version.pace.record(time.monotonic() - started, len(batch))
            for queued, outcome in zip(batch, ran.outcomes, strict=True):
                _settle(queued, outcome)
            self._observe_batch(version, ran, batch)
        finally:
            version.running -= len(batch)
            self._ended.set()
            self.pool.release(worker)

    def _threads(self, version: ServedVersion) -> int:
        """Return every core for a batch that is alone in the pool, else a worker's share."""
        alone = self.pool.busy <= 1 and not any(len(each.queue) for each in self._versions)
        return version.spec.threads[-1 if alone else 0]

    def _run_alone(self, version: ServedVersion, batch: list[QueuedRequest], error: PaddlewheelError) -> None:
        """Put the requests of a batch that failed as a whole back, each to run alone; one that did gets `error`."""
        for queued in reversed(batch):
            if queued.answer.done():
                continue
            if queued.alone:
                queued.answer.set_exception(error)
            else:
                queued.alone = True
                version.queue.put_back(queued)

    def _on_answer(self, _: asyncio.Future[Answer]) -> None:
        self._ended.set()

    def _observe_batch(self, version: ServedVersion, ran: Ran, batch: Sequence[QueuedRequest]) -> None:
        rows = sum(queued.rows for queued in batch)
        version.statistics.record_batch(len(batch), rows, ran.input_s, ran.run_s, ran.output_s)
        self._metrics.inference_ms.labels(*version.labels, version.spec.engine).observe(ran.run_s * 1000)
        answer = next((outcome for outcome in ran.outcomes if isinstance(outcome, Answer)), None)
        for stage, milliseconds in (answer.timing_ms if answer else {}).items():
            self._metrics.stage_seconds.labels(*version.labels, stage).observe(milliseconds / 1000)


def _settle(queued: QueuedRequest, outcome: Outcome) -> None:
    if queued.answer.done():
        return
    if isinstance(outcome, Answer):
        queued.answer.set_result(outcome)
    else:
        queued.answer.set_exception(outcome)
