"""The way of a request through the server: admission, queue, answer. Every edge and the job runner call :meth:`infer`.

    infer ─ admit (draining? known? loaded? well formed? in time?) ─ queue ─ wait ─ answer

The service knows no protocol; the models and what runs them are the repository's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Self

import msgspec

from paddlewheel import catalog, pipelines
from paddlewheel.batching import QueuedRequest, Scheduler, ServedVersion
from paddlewheel.batching.parts import joined, split
from paddlewheel.config import Settings
from paddlewheel.errors import (
    CancelledByCallerError,
    DeadlineExceededError,
    PaddlewheelError,
    ResourceExhaustedError,
    shutting_down,
)
from paddlewheel.inference import Answer, InferenceRequest, InferenceResponse
from paddlewheel.pipelines.classes import top_classes
from paddlewheel.repository import ModelRepository
from paddlewheel.telemetry.metrics import UNKNOWN, Metrics

_LATE_MARGIN = 1.25
"""By how much a request may take longer than expected and still be in time: half of them take longer than the mean."""


@dataclass(slots=True, eq=False)
class Submission:
    """A request that was admitted to a version; one with more rows than a batch waits in several parts."""

    request: InferenceRequest
    version: ServedVersion
    parts: Sequence[QueuedRequest]
    ending: PaddlewheelError | None = None
    """Why it was given up before its answer, if it was."""

    @property
    def dispatched_at(self) -> float | None:
        """When the first of it went to a worker, on the monotonic clock; None while all of it waits."""
        if len(self.parts) == 1:
            return self.parts[0].dispatched_at
        return min((part.dispatched_at for part in self.parts if part.dispatched_at is not None), default=None)

    def leave(self) -> None:
        """Give it up: its caller has left."""
        self._end(CancelledByCallerError("The caller closed the connection."))

    def promote(self) -> None:
        """Let what still waits of it go with requests of the highest priority."""
        for part in self.parts:
            self.version.queue.promote(part)

    def expire(self) -> None:
        """Give it up: its time is over."""
        state = "queued" if self.dispatched_at is None else "running"
        self._end(DeadlineExceededError(f"The deadline passed while the request was {state}."))

    def _end(self, error: PaddlewheelError) -> None:
        self.ending = self.ending or error
        self.take_back()

    def take_back(self) -> None:
        """Take out of queue and workers what is there of it still."""
        for part in self.parts:
            part.leave()


class Service:
    """Models behind queues; start it with :meth:`load`, inside ``async with``."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.draining = False
        """Whether the server is about to stop: not ready any more, though it may still take requests."""
        self._refusing = False
        self.broken = asyncio.Event()
        self.models = ModelRepository(settings, metrics, self.broken)
        self._waiting: set[asyncio.Future[Answer]] = set()
        self._outcomes = cache(metrics.requests.labels)

    async def __aenter__(self) -> Self:
        """Begin; no model is loaded yet."""
        await self.models.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop every worker."""
        await self.models.__aexit__()

    async def load(self, progress: catalog.Progress = lambda _: None) -> None:
        """Load every model; returns when each is loaded or has failed."""
        await self.models.load_all(progress)

    def model_ready(self, name: str, version: str | None = None) -> bool:
        """Tell whether `name`, or its `version`, can be called."""
        return not self.draining and self.models.model_ready(name, version)

    @property
    def ready(self) -> bool:
        """Whether every model that should be served can be called; a server without models is not ready."""
        return not self.draining and self.models.ready

    def begin_draining(self) -> None:
        """Be not ready any more, and go on taking requests."""
        self.draining = True
        for listener in self.models.on_change:
            listener()

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Answer `request`, or raise the :class:`PaddlewheelError` that says why not.

        Cancelling the caller's task takes the request out of the queue, or tells the worker that runs it.
        """
        return await self.wait(self.submit(request))

    def check(self, request: InferenceRequest) -> None:
        """Raise what :meth:`submit` would, but for what only a queue can tell."""
        if self._refusing:
            raise shutting_down()
        _, version = self.models.find(request.model, request.version, request.sticky_key)
        pipelines.check(version.spec, version.signature, request)

    def submit(self, request: InferenceRequest) -> Submission:
        """Admit `request` and queue it; the caller must hand it to :meth:`wait`."""
        with self.refusals(request.model):
            if self._refusing:
                raise shutting_down()
            scheduler, version = self.models.find(request.model, request.version, request.sticky_key)
        try:
            submission = self._admit(request, version, scheduler)
        except PaddlewheelError as error:
            self._count(version.labels, error.code)
            raise
        for part in submission.parts:
            self._waiting.add(part.answer)
            part.answer.add_done_callback(self._waiting.discard)
        return submission

    async def wait(self, submission: Submission) -> InferenceResponse:
        """Return the answer of a request that :meth:`submit` queued."""
        version, began = submission.version, time.monotonic()
        code, duration = "OK", version.statistics.fail
        try:
            answers = await self._answers(submission)
            duration = version.statistics.success
        except PaddlewheelError as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = CancelledByCallerError.code
            raise
        finally:
            self._count(version.labels, code)
            duration.add(time.monotonic() - began)
        return _response(submission, _classified(submission, joined(answers)))

    async def _answers(self, submission: Submission) -> list[Answer]:
        """Wait for the parts' answers until the deadline; however that ends, no part is left behind."""
        deadline = submission.request.deadline
        assert deadline is not None, "submit gives each request a deadline"
        left_s = max(deadline - time.monotonic(), 0)
        expiry = asyncio.get_running_loop().call_later(left_s, submission.expire)
        try:
            # Cancelling this task cancels the future that it waits for, and so takes its request back.
            return [await part.answer for part in submission.parts]
        except asyncio.CancelledError:
            if submission.ending is None:
                raise
            raise submission.ending from None
        finally:
            expiry.cancel()
            submission.take_back()

    async def drain(self, grace_s: float) -> None:
        """Refuse new requests and wait until those that were taken are answered.

        After `grace_s`, or when this call is cancelled, these are refused too.
        """
        self.draining = self._refusing = True
        try:
            if self._waiting:
                await asyncio.wait(self._waiting, timeout=grace_s)
        finally:
            for answer in tuple(self._waiting):
                if not answer.done():
                    answer.set_exception(shutting_down())

    def _admit(self, request: InferenceRequest, version: ServedVersion, scheduler: Scheduler) -> Submission:
        pipelines.check(version.spec, version.signature, request)
        if request.deadline is None:
            timeout_s = version.batching.default_timeout_microseconds / 1e6
            request = msgspec.structs.replace(request, deadline=time.monotonic() + timeout_s)
        else:
            self._refuse_if_late(request.deadline, version, scheduler)
        parts = split(request, version.rows_of(request), version.max_batch_size)
        return Submission(request, version, scheduler.submit(version, parts))

    def _refuse_if_late(self, deadline: float, version: ServedVersion, scheduler: Scheduler) -> None:
        """Refuse at once what would only expire in the queue, by the measured pace.

        What need not wait is taken, however slow the model seems: only running it can show that it no longer is.
        """
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceededError("The deadline had passed when the request arrived.")
        expected_s = scheduler.expected_s(version)
        if version.pace.trusted and scheduler.wait_s(version) > 0 and expected_s * _LATE_MARGIN > left_s:
            raise ResourceExhaustedError(
                f"Model '{version.spec.name}' would answer in about {expected_s:.1f} s; too late to be sure of the "
                f"deadline in {left_s:.1f} s.",
                retry_after_s=scheduler.retry_after_s(version),
            )

    @contextmanager
    def refusals(self, model: str) -> Iterator[None]:
        """Count an error of the block as the outcome of a request that does not get to :meth:`submit`."""
        labels = (model if model in self.models else UNKNOWN, UNKNOWN)
        try:
            yield
        except PaddlewheelError as error:
            self._count(labels, error.code)
            raise
        except asyncio.CancelledError:
            self._count(labels, CancelledByCallerError.code)
            raise

    def _count(self, labels: tuple[str, str], outcome: str) -> None:
        self._outcomes(*labels, outcome).inc()


def _classified(submission: Submission, answer: Answer) -> Answer:
    """Return `answer` with the best classes in place of the outputs of which they are wanted."""
    wanted, version = submission.request.classes, submission.version
    if not wanted:
        return answer
    rows = version.has_rows
    outputs = tuple(
        top_classes(tensor, wanted[tensor.name], version.spec.labels, rows=rows) if tensor.name in wanted else tensor
        for tensor in answer.outputs
    )
    return msgspec.structs.replace(answer, outputs=outputs)


def _response(submission: Submission, answer: Answer) -> InferenceResponse:
    enqueued_at, dispatched_at = submission.parts[0].enqueued_at, submission.dispatched_at
    assert dispatched_at is not None, "it was answered"
    timing_ms = {"queue": round((dispatched_at - enqueued_at) * 1000, 2)}
    for stage, value in answer.timing_ms.items():
        timing_ms[stage] = round(value, 2)
    timing_ms["total"] = round((time.monotonic() - enqueued_at) * 1000, 2)
    spec = submission.version.spec
    timed = Answer(answer.outputs, answer.parameters, timing_ms)
    return InferenceResponse(submission.request.id, spec.name, spec.version, timed)
