"""The way of a request through the server: admission, queue, answer. Every edge and the job runner call :meth:`infer`.

    infer ─ admit (draining? known? loaded? well formed? in time?) ─ queue ─ wait ─ answer

The service owns the pools, their schedulers and the models; it knows no protocol.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import Self

import structlog

from paddlewheel import catalog, pipelines, repository
from paddlewheel.batching import QueuedRequest, Scheduler, ServedModel
from paddlewheel.config import Settings
from paddlewheel.errors import (
    CancelledByCallerError,
    DeadlineExceededError,
    NotFoundError,
    PaddlewheelError,
    ResourceExhaustedError,
    UnavailableError,
    from_record,
)
from paddlewheel.inference import Answer, InferenceRequest, InferenceResponse
from paddlewheel.pipelines import ModelSpec
from paddlewheel.telemetry.metrics import UNKNOWN, Metrics
from paddlewheel.workers import ModelState, ProcessPool, Setup, fork_server

_LOADING_RETRY_AFTER_S = 1.0
_LATE_MARGIN = 1.25
"""By how much a request may take longer than expected and still be in time: half of them take longer than the mean."""

_log = structlog.stdlib.get_logger(__name__)


class _GivenUpError(Exception):
    """Nobody waits any more for what is being pulled."""


class Service:
    """Models behind queues; start it with :meth:`load`, inside ``async with``."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.draining = False
        """Whether the server is about to stop: not ready any more, though it may still take requests."""
        self._refusing = False
        self.broken = asyncio.Event()
        self._failed: dict[str, PaddlewheelError] = {}
        self._models: dict[str, ServedModel] = {}
        self._schedulers: dict[str, Scheduler] = {}
        self._waiting: set[asyncio.Future[Answer]] = set()
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Begin; no model is loaded yet."""
        await self._running.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop every worker."""
        await self._running.aclose()

    async def load(self, progress: catalog.Progress = lambda _: None) -> None:
        """Pull what is missing and start the pools; returns when every model is loaded or has failed."""
        specs = await self._resolve_all(progress)
        self._running.enter_context(fork_server(spec.engine for spec in specs))
        for name in self.settings.pool:
            mine = [spec for spec in specs if self.settings.models[spec.name].pool == name]
            if mine:
                await self._start_pool(name, mine)
        await asyncio.gather(*(scheduler.pool.settled() for scheduler in self._schedulers.values()))

    async def _resolve_all(self, progress: catalog.Progress) -> list[ModelSpec]:
        """Resolve the models in a thread, for pulling blocks; it ends soon after this call is cancelled."""
        given_up = threading.Event()

        def report(step: catalog.Step) -> None:
            if given_up.is_set():
                raise _GivenUpError
            progress(step)

        try:
            return await asyncio.to_thread(self._resolve, report)
        finally:
            given_up.set()

    def _resolve(self, progress: catalog.Progress) -> list[ModelSpec]:
        specs = []
        for name in self.settings.models:
            try:
                specs.append(repository.resolve(name, self.settings, progress))
            except PaddlewheelError as error:
                self._failed[name] = error
                _log.error("model cannot be served", model=name, reason=error.detail)
        return specs

    async def _start_pool(self, name: str, specs: list[ModelSpec]) -> None:
        settings, telemetry = self.settings.pool[name], self.settings.telemetry
        setup = Setup(nice=settings.nice, log_level=telemetry.log_level, log_format=telemetry.log_format)
        pool = ProcessPool(name, settings, specs, setup=setup, metrics=self.metrics, broken=self.broken)
        served = [ServedModel(spec, self.settings.models[spec.name].batching) for spec in specs]
        scheduler = Scheduler(pool, served, self.metrics)
        await self._running.enter_async_context(pool)
        await self._running.enter_async_context(scheduler)
        for model in served:
            self._models[model.spec.name] = model
            self._schedulers[model.spec.name] = scheduler

    @property
    def failures(self) -> Mapping[str, PaddlewheelError]:
        """The models that cannot be served, and why."""
        states = self.states().values()
        return self._failed | {state.spec.name: state.error for state in states if state.error is not None}

    def states(self) -> dict[str, ModelState]:
        """Return how each model that was found stands."""
        return {name: scheduler.pool.models[name] for name, scheduler in self._schedulers.items()}

    def pools(self) -> dict[str, ProcessPool]:
        """Return the pools that have models, by name."""
        return {scheduler.pool.name: scheduler.pool for scheduler in self._schedulers.values()}

    def model_ready(self, name: str) -> bool:
        """Tell whether `name` is loaded and warm in a worker that is up."""
        return not self.draining and self._loaded(name)

    def _loaded(self, name: str) -> bool:
        return name in self._models and self._schedulers[name].pool.serves(name)

    @property
    def ready(self) -> bool:
        """Whether every configured model can be called; a server without models is not ready."""
        names = self.settings.models
        return bool(names) and all(self.model_ready(name) for name in names)

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Answer `request`, or raise the :class:`PaddlewheelError` that says why not.

        Cancelling the caller's task takes the request out of the queue, or tells the worker that runs it.
        """
        return await self.wait(self.submit(request))

    def submit(self, request: InferenceRequest) -> QueuedRequest:
        """Admit `request` and queue it; the caller must hand it to :meth:`wait`."""
        with self.refusals(request.model):
            queued = self._admit(request)
        self._waiting.add(queued.answer)
        queued.answer.add_done_callback(self._waiting.discard)
        return queued

    async def wait(self, queued: QueuedRequest) -> InferenceResponse:
        """Return the answer of a request that :meth:`submit` queued."""
        request = queued.request
        assert request.deadline is not None, "submit gives each request a deadline"
        with self._outcome(request.model):
            try:
                async with asyncio.timeout(request.deadline - time.monotonic()):
                    answer = await asyncio.shield(queued.answer)
            except TimeoutError:
                state = "queued" if queued.dispatched_at is None else "running"
                raise DeadlineExceededError(f"The deadline passed while the request was {state}.") from None
            finally:
                queued.leave()
        return _response(queued, answer, self._models[request.model].spec)

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
                    answer.set_exception(_shutting_down())

    def _admit(self, request: InferenceRequest) -> QueuedRequest:
        model, scheduler = self._find(request.model)
        pipelines.check(model.spec, request)
        if request.deadline is None:
            timeout_s = model.batching.default_timeout_microseconds / 1e6
            request = replace(request, deadline=time.monotonic() + timeout_s)
        else:
            self._refuse_if_late(request.deadline, model, scheduler)
        return scheduler.submit(request)

    def _find(self, name: str) -> tuple[ServedModel, Scheduler]:
        if self._refusing:
            raise _shutting_down()
        if name not in self.settings.models:
            known = ", ".join(sorted(self.settings.models))
            raise NotFoundError(f"There is no model '{name:.100}'; this server has: {known}.")
        if name in self.failures:
            # A copy: an exception that is raised again and again gathers tracebacks.
            raise from_record(self.failures[name].record())
        if not self._loaded(name):
            raise UnavailableError(f"Model '{name}' is not loaded yet.", retry_after_s=_LOADING_RETRY_AFTER_S)
        return self._models[name], self._schedulers[name]

    def _refuse_if_late(self, deadline: float, model: ServedModel, scheduler: Scheduler) -> None:
        """Refuse at once what would only expire in the queue, by the measured pace.

        What need not wait is taken, however slow the model seems: only running it can show that it no longer is.
        """
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceededError("The deadline had passed when the request arrived.")
        expected_s = scheduler.expected_s(model)
        if model.pace.trusted and scheduler.wait_s(model) > 0 and expected_s * _LATE_MARGIN > left_s:
            raise ResourceExhaustedError(
                f"Model '{model.spec.name}' would answer in about {expected_s:.1f} s; too late to be sure of the "
                f"deadline in {left_s:.1f} s.",
                retry_after_s=scheduler.retry_after_s(model),
            )

    @contextmanager
    def refusals(self, model: str) -> Iterator[None]:
        """Count an error of the block as the outcome of a request to `model`: one that does not get to :meth:`wait`."""
        try:
            yield
        except PaddlewheelError as error:
            self._count(model, error.code)
            raise
        except asyncio.CancelledError:
            self._count(model, CancelledByCallerError.code)
            raise

    @contextmanager
    def _outcome(self, model: str) -> Iterator[None]:
        """Count how a request ends."""
        with self.refusals(model):
            yield
        self._count(model, "OK")

    def _count(self, model: str, outcome: str) -> None:
        known = model if model in self.settings.models else UNKNOWN
        self.metrics.requests.labels(known, outcome).inc()


def _shutting_down() -> UnavailableError:
    return UnavailableError("The server is shutting down.", retry_after_s=_LOADING_RETRY_AFTER_S)


def _response(queued: QueuedRequest, answer: Answer, spec: ModelSpec) -> InferenceResponse:
    assert queued.dispatched_at is not None
    timing_ms = {
        "queue": (queued.dispatched_at - queued.enqueued_at) * 1000,
        **answer.timing_ms,
        "total": (time.monotonic() - queued.enqueued_at) * 1000,
    }
    timed = replace(answer, timing_ms={stage: round(value, 2) for stage, value in timing_ms.items()})
    return InferenceResponse(queued.request.id, spec.name, spec.version, timed)
