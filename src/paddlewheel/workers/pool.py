"""A pool: the worker processes of one device, each holding every model of the pool, kept alive.

Each place in the pool has a task that brings a worker up, waits until it ends or is due for replacement, and brings up
the next. A worker over its memory ceiling serves on until its successor is ready, so a replacement loses neither work
nor capacity. A model that cannot be loaded is marked with the reason and left out; the others are served. One that was
loaded before must load again: a worker that cannot do so has not come up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

import structlog

from paddlewheel.config import PoolSettings
from paddlewheel.errors import ModelLoadError, PaddlewheelError
from paddlewheel.pipelines.spec import ModelSpec
from paddlewheel.telemetry.metrics import Metrics
from paddlewheel.workers.child import Setup
from paddlewheel.workers.cores import available_cores, worker_count
from paddlewheel.workers.process import WorkerEndedError, WorkerProcess

_LOAD_TIMEOUT_S = 300.0
_MOST_LOAD_CRASHES = 2
_MOST_FAILED_STARTS = 5
_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 30.0

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class ModelState:
    """How a model of the pool stands."""

    spec: ModelSpec
    status: Literal["loading", "ready", "failed"] = "loading"
    description: dict[str, str] = field(default_factory=dict)
    error: PaddlewheelError | None = None
    load_crashes: int = 0

    def crashed(self, error: WorkerEndedError) -> None:
        """Take in that a worker ended while it loaded the model; it is left out when that happens again."""
        self.load_crashes += 1
        if self.load_crashes >= _MOST_LOAD_CRASHES and self.status == "loading":
            detail = f"Loading model '{self.spec.name}' from {self.spec.folder} ends the worker process"
            self.fail(ModelLoadError(f"{detail} ({error}); its files are probably damaged."))

    def fail(self, error: PaddlewheelError) -> None:
        """Leave the model out from now on."""
        self.status, self.error = "failed", error
        _log.error("model cannot be served", model=self.spec.name, reason=error.detail)


class _LoadCrashedError(Exception):
    """A model that was never loaded before ended the worker that loaded it."""


@dataclass(slots=True, eq=False)
class _Place:
    """A worker in the pool, and what its place waits for."""

    worker: WorkerProcess
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    due: asyncio.Event = field(default_factory=asyncio.Event)
    retiring: bool = False

    def takes(self, model: str) -> bool:
        """Whether the worker could run a batch of `model` now."""
        return self.idle.is_set() and not self.retiring and model in self.worker.models


class ProcessPool:
    """Worker processes; start and stop it with ``async with``.

    `on_change` is called when a worker becomes idle; `broken` is set when none is up and they keep failing to come up.
    """

    def __init__(
        self,
        name: str,
        settings: PoolSettings,
        specs: Sequence[ModelSpec],
        *,
        setup: Setup,
        metrics: Metrics,
        broken: asyncio.Event,
    ) -> None:
        self.name = name
        self.threads = specs[0].threads
        self.size = worker_count(settings, available_cores())
        self.models = {spec.name: ModelState(spec) for spec in specs}
        self._broken = broken
        self.on_change: Callable[[], None] = lambda: None
        self._settings = settings
        self._setup = setup
        self._metrics = metrics
        self._places: dict[WorkerProcess, _Place] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._failed_starts = 0
        self._settled = asyncio.Event()
        # One at a time: each has two processes for a while.
        self._recycling = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Begin to bring the workers up; returns before they are ready."""
        self._keepers = [asyncio.create_task(self._keep_place()) for _ in range(self.size)]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop every worker; those that still run something are killed."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for place in self._places.values():
            if not place.idle.is_set():
                place.worker.kill("stop")
        await asyncio.gather(*(worker.stop() for worker in list(self._places)))

    async def settled(self) -> None:
        """Wait until every place has had a worker."""
        await self._settled.wait()

    @property
    def workers(self) -> int:
        """The number of workers that are up."""
        return len(self._places)

    @property
    def busy(self) -> int:
        """The number of workers that run something."""
        return sum(not place.idle.is_set() for place in self._places.values())

    def serves(self, model: str) -> bool:
        """Tell whether a worker is up that has `model` loaded."""
        return any(model in worker.models for worker in self._places)

    def has_idle(self, model: str) -> bool:
        """Tell whether :meth:`take_idle` would return a worker."""
        return any(place.takes(model) for place in self._places.values())

    def take_idle(self, model: str) -> WorkerProcess:
        """Return an idle worker that has `model` and mark it busy; give it back with :meth:`release`."""
        for worker, place in self._places.items():
            if place.takes(model):
                place.idle.clear()
                self._observe()
                return worker
        raise LookupError(model)

    def release(self, worker: WorkerProcess) -> None:
        """Take back a worker whose batch is done."""
        place = self._places.get(worker)
        if place is not None:
            if worker.rss_bytes > self._settings.memory_limit_mb << 20 and not place.due.is_set():
                worker.end_reason = "memory"
                place.due.set()
            place.idle.set()
            self._observe()
        self.on_change()

    async def _keep_place(self) -> None:
        place = await self._bring_up()
        while True:
            await place.due.wait()
            worker = place.worker
            _log.warning("worker is replaced", pool=self.name, pid=worker.pid, reason=worker.end_reason)
            self._metrics.worker_restarts.labels(self.name, worker.end_reason).inc()
            if worker.ended.is_set():
                place = await self._bring_up()
            else:
                async with self._recycling:
                    successor = await self._bring_up()
                    place.retiring = True
                    await place.idle.wait()
                    await worker.stop()
                place = successor

    async def _bring_up(self) -> _Place:
        """Start a worker and load every model that can be loaded, for as often as it takes."""
        while True:
            worker = WorkerProcess(self._setup, hang_timeout_s=self._settings.hang_timeout_s, on_end=self._ended)
            try:
                await worker.start()
                await self._load_models(worker)
            except _LoadCrashedError:
                continue
            except WorkerEndedError as error:
                await self._back_off(error)
                continue
            except asyncio.CancelledError:
                worker.kill("stop")
                await worker.stop()
                raise
            self._failed_starts = 0
            place = self._places[worker] = _Place(worker)
            place.idle.set()
            if self.workers >= self.size:
                self._settled.set()
            self._observe()
            self.on_change()
            return place

    async def _back_off(self, error: WorkerEndedError) -> None:
        _log.error("worker did not come up", pool=self.name, reason=str(error))
        self._failed_starts += 1
        if self._failed_starts >= _MOST_FAILED_STARTS and not self._places:
            self._broken.set()
        await asyncio.sleep(min(_FIRST_BACKOFF_S * 2**self._failed_starts, _LONGEST_BACKOFF_S))

    async def _load_models(self, worker: WorkerProcess) -> None:
        for state in self.models.values():
            if state.status == "failed":
                continue
            try:
                state.description = await worker.load(state.spec, _LOAD_TIMEOUT_S)
            except PaddlewheelError as error:
                if state.status == "ready":
                    worker.kill("stop")
                    raise WorkerEndedError(f"Model '{state.spec.name}' does not load again: {error}") from error
                state.fail(error)
            except WorkerEndedError as error:
                if state.status == "ready":
                    raise
                _log.error("worker ended while it loaded a model", model=state.spec.name, reason=str(error))
                state.crashed(error)
                raise _LoadCrashedError from error
            else:
                state.status = "ready"

    def _ended(self, worker: WorkerProcess) -> None:
        place = self._places.pop(worker, None)
        if place is not None:
            place.idle.set()
            place.due.set()
            self._observe()

    def _observe(self) -> None:
        gauge = self._metrics.workers
        gauge.labels(self.name, "busy").set(self.busy)
        gauge.labels(self.name, "idle").set(self.workers - self.busy)
        gauge.labels(self.name, "starting").set(max(self.size - self.workers, 0))
        self._metrics.worker_rss_bytes.labels(self.name).set(sum(worker.rss_bytes for worker in self._places))
