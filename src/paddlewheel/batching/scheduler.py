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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import structlog

from paddlewheel.batching.buckets import bucket_of, rows_of
from paddlewheel.batching.pace import Pace
from paddlewheel.batching.request_queue import QueuedRequest, RequestQueue
from paddlewheel.config import Batching
from paddlewheel.errors import InternalError, InvalidArgumentError, PaddlewheelError, WorkerCrashedError
from paddlewheel.inference import Answer, InferenceRequest
from paddlewheel.pipelines.pipeline import Outcome
from paddlewheel.pipelines.spec import ModelSpec
from paddlewheel.telemetry.metrics import Metrics
from paddlewheel.workers import ProcessPool, WorkerEndedError, WorkerProcess

_LONGEST_RETRY_AFTER_S = 60
_DEFAULT_BATCH_SIZE = 8

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class ServedModel:
    """A model of the pool, with its queue."""

    spec: ModelSpec
    batching: Batching
    queue: RequestQueue = field(init=False)
    pace: Pace = field(default_factory=Pace)
    running: int = 0

    def __post_init__(self) -> None:
        self.queue = RequestQueue(
            self.spec.name, max_size=self.batching.max_queue_size, priority_levels=self.batching.priority_levels
        )

    @property
    def max_batch_size(self) -> int:
        """The most rows of a batch: unless the settings say, 1 for pictures on a CPU, else 8.

        Measured on a CPU, a picture costs the same alone and among eight, and in a batch it waits for all of them.
        """
        if self.batching.max_batch_size is not None:
            return self.batching.max_batch_size
        return _DEFAULT_BATCH_SIZE if self.spec.pipeline == "tensor" or self.spec.device != "cpu" else 1

    def ready_at(self, head: QueuedRequest) -> float:
        """Return the instant from which a batch that starts with `head` may run; the past if it may now."""
        delay_s = self.batching.max_queue_delay_microseconds / 1e6
        enough = self.batching.preferred_batch_size or self.max_batch_size
        if delay_s == 0 or self.queue.waiting_like(head, enough) >= enough:
            return head.enqueued_at
        return head.enqueued_at + delay_s


class Scheduler:
    """Runs the queues of one pool; start and stop it with ``async with``."""

    def __init__(self, pool: ProcessPool, models: Sequence[ServedModel], metrics: Metrics) -> None:
        self.pool = pool
        self._models: Mapping[str, ServedModel] = {model.spec.name: model for model in models}
        self._metrics = metrics
        self._wake = asyncio.Event()
        self._batches: set[asyncio.Task[None]] = set()
        pool.on_change = self._wake.set

    async def __aenter__(self) -> Self:
        """Begin to dispatch."""
        self._loop = asyncio.create_task(self._dispatch_forever())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop dispatching; batches that run are dropped, their callers have been answered or told."""
        for task in (self._loop, *self._batches):
            task.cancel()
        await asyncio.gather(self._loop, *self._batches, return_exceptions=True)

    def submit(self, request: InferenceRequest) -> QueuedRequest:
        """Queue `request`; raises :class:`ResourceExhaustedError` when its model's queue is full."""
        model = self._models[request.model]
        pipeline, rows = model.spec.pipeline, rows_of(model.spec.pipeline, request)
        if rows > model.max_batch_size:
            raise InvalidArgumentError(
                f"The request has {rows} rows; model '{model.spec.name}' takes at most "
                f"{model.max_batch_size} at once (setting max_batch_size)."
            )
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        queued = QueuedRequest(request, bucket_of(pipeline, request), time.monotonic(), answer, rows)
        model.queue.put(queued, self.retry_after_s(model))
        answer.add_done_callback(lambda _: self._observe(model))
        self._observe(model)
        self._wake.set()
        return queued

    def wait_s(self, model: ServedModel) -> float:
        """Return how long a request that is queued now will wait, by the measured pace."""
        ahead = len(model.queue) + model.running - self.pool.workers + 1
        return model.pace.wait_s(max(ahead, 0), self.pool.workers)

    def expected_s(self, model: ServedModel) -> float:
        """Return how long a request that is queued now will take in all, by the measured pace."""
        return self.wait_s(model) + model.pace.wait_s(1, 1)

    def retry_after_s(self, model: ServedModel) -> float:
        """Return when it is worth trying again: half of what waits now should be done by then, in whole seconds."""
        return min(max(math.ceil(self.wait_s(model) / 2), 1), _LONGEST_RETRY_AFTER_S)

    async def _dispatch_forever(self) -> None:
        while True:
            next_ready = self._dispatch_ready()
            pause = None if next_ready is None else max(next_ready - time.monotonic(), 0)
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()

    def _dispatch_ready(self) -> float | None:
        """Give every ready batch that an idle worker can take to one; return when the next will be ready."""
        while True:
            candidates = [
                (head.request.priority, head.enqueued_at, model.ready_at(head), model, head)
                for model in self._models.values()
                if (head := model.queue.head()) is not None and self.pool.has_idle(model.spec.name)
            ]
            now = time.monotonic()
            ready = [candidate for candidate in candidates if candidate[2] <= now]
            if not ready:
                return min((candidate[2] for candidate in candidates), default=None)
            *_, model, head = min(ready, key=lambda candidate: candidate[:2])
            batch = model.queue.take(self._limit(model, head), now)
            if batch:
                self._start(model, batch)

    def _limit(self, model: ServedModel, head: QueuedRequest) -> int:
        """Return the most rows for the next batch, which starts with `head`.

        Without a queue delay nobody asked for large batches: the waiting requests are shared out over the workers, so
        that a burst does not go to one worker while the others stand idle.
        """
        most = model.max_batch_size
        if model.batching.max_queue_delay_microseconds:
            return most
        workers = max(self.pool.workers, 1)
        return math.ceil(model.queue.waiting_like(head, most * workers) / workers)

    def _start(self, model: ServedModel, batch: list[QueuedRequest]) -> None:
        worker = self.pool.take_idle(model.spec.name)
        for index, queued in enumerate(batch):
            queued.dispatched_at = time.monotonic()
            queued.on_leave(partial(worker.abandon, index))
            self._metrics.queue_wait_seconds.labels(model.spec.name).observe(queued.dispatched_at - queued.enqueued_at)
        self._metrics.batch_size.labels(model.spec.name).observe(len(batch))
        task = asyncio.create_task(self._run(model, worker, batch))
        self._batches.add(task)
        task.add_done_callback(self._batches.discard)

    async def _run(self, model: ServedModel, worker: WorkerProcess, batch: list[QueuedRequest]) -> None:
        model.running += len(batch)
        self._observe(model)
        started = time.monotonic()
        try:
            outcomes = await worker.run(model.spec.name, [queued.request for queued in batch], self._threads(model))
        except WorkerEndedError as error:
            _log.warning("a worker ended with its batch", model=model.spec.name, requests=len(batch), reason=str(error))
            detail = "Two workers that ran the request ended before it was done; it is not tried again."
            self._run_alone(model, batch, WorkerCrashedError(detail))
        except PaddlewheelError as error:
            self._run_alone(model, batch, error)
        except Exception:  # a fault of ours must not leave callers without an answer
            _log.exception("a batch failed outside of the model", model=model.spec.name)
            self._run_alone(model, batch, InternalError("The server failed on this request; its log has the reason."))
        else:
            model.pace.record(time.monotonic() - started, len(batch))
            for queued, outcome in zip(batch, outcomes, strict=True):
                _settle(queued, outcome)
            self._observe_stages(model, outcomes)
        finally:
            model.running -= len(batch)
            self._observe(model)
            self.pool.release(worker)

    def _threads(self, model: ServedModel) -> int:
        """Return every core for a batch that is alone in the pool, else a worker's share."""
        alone = self.pool.busy <= 1 and not any(each.queue.head() for each in self._models.values())
        return model.spec.threads[-1 if alone else 0]

    def _run_alone(self, model: ServedModel, batch: list[QueuedRequest], error: PaddlewheelError) -> None:
        """Put the requests of a batch that failed as a whole back, each to run alone; one that did gets `error`."""
        for queued in reversed(batch):
            if queued.answer.done():
                continue
            if queued.alone:
                queued.answer.set_exception(error)
            else:
                queued.alone = True
                model.queue.put_back(queued)

    def _observe(self, model: ServedModel) -> None:
        self._metrics.queue_depth.labels(model.spec.name).set(len(model.queue))
        self._metrics.running.labels(model.spec.name).set(model.running)

    def _observe_stages(self, model: ServedModel, outcomes: Sequence[Outcome]) -> None:
        answer = next((outcome for outcome in outcomes if isinstance(outcome, Answer)), None)
        for stage, milliseconds in (answer.timing_ms if answer else {}).items():
            self._metrics.stage_seconds.labels(model.spec.name, stage).observe(milliseconds / 1000)


def _settle(queued: QueuedRequest, outcome: Outcome) -> None:
    if queued.answer.done():
        return
    if isinstance(outcome, Answer):
        queued.answer.set_result(outcome)
    else:
        queued.answer.set_exception(outcome)
