"""A pool: the worker processes of one device, each holding every model of the pool, kept alive.

Each place in the pool has a task that brings a worker up, waits until it ends or is due for replacement, and brings up
the next. A replaced worker serves on until its successor is ready, so a replacement loses neither work nor capacity.
That is also how models are loaded at run time: one worker after the other is replaced by one that has them, and a
model that cannot be loaded, or that ends its process, is only ever met by a worker that does not serve yet.

A model that cannot be loaded is marked with the reason and left out; the others are served. One that was loaded before
must load again: a worker that cannot do so has not come up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Self

import structlog

from paddlewheel.config import PoolSettings
from paddlewheel.errors import PaddlewheelError
from paddlewheel.pipelines.spec import ModelSpec
from paddlewheel.telemetry.metrics import Metrics
from paddlewheel.workers.child import Setup
from paddlewheel.workers.cores import available_cores, thread_counts, worker_count
from paddlewheel.workers.model_state import ModelState
from paddlewheel.workers.place import Place
from paddlewheel.workers.process import WorkerEndedError, WorkerProcess

_LOAD_TIMEOUT_S = 300.0
_MOST_FAILED_STARTS = 5
_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 30.0

_log = structlog.stdlib.get_logger(__name__)


class _LoadCrashedError(Exception):
    """A model that was never loaded before ended the worker that loaded it."""


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
        self.threads = thread_counts(settings, available_cores())
        self.size = worker_count(settings, available_cores())
        self.models = {spec.key: ModelState(spec) for spec in specs}
        """Every version that the pool holds or tries to, by key."""
        self._broken = broken
        self.on_change: Callable[[], None] = lambda: None
        self._settings = settings
        self._setup = setup
        self._metrics = metrics
        self._places: dict[WorkerProcess, Place] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._failed_starts = 0
        self._settled = asyncio.Event()
        # One at a time: each has two processes for a while.
        self._replacing = asyncio.Lock()
        self._show(metrics)

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

    async def load(self, specs: Sequence[ModelSpec]) -> list[ModelState]:
        """Load versions into every worker; returns how each stands once it is ready everywhere, or has failed."""
        await self.settled()
        states = [ModelState(spec) for spec in specs]
        self.models |= {state.spec.key: state for state in states}
        for place in list(self._places.values()):
            if all(state.status == "failed" for state in states):
                break
            place.replace("load")
            await place.gone.wait()
        return await self.loaded(specs)

    async def loaded(self, specs: Sequence[ModelSpec]) -> list[ModelState]:
        """Return how each of `specs` stands once every place has had a worker; those that failed are forgotten."""
        await self.settled()
        states = [self.models[spec.key] for spec in specs]
        for state in states:
            if state.status == "failed":
                del self.models[state.spec.key]
        return states

    async def unload(self, key: str) -> None:
        """Forget the version with this key in every worker, each as soon as it is idle."""
        del self.models[key]
        for worker, place in list(self._places.items()):
            while not place.idle.is_set():
                await place.idle.wait()
            if key not in worker.models or worker.ended.is_set():
                continue
            place.idle.clear()
            try:
                await worker.unload(key)
            except WorkerEndedError:
                continue
            finally:
                self.release(worker)

    @property
    def workers(self) -> int:
        """The number of workers that are up."""
        return len(self._places)

    @property
    def busy(self) -> int:
        """The number of workers that run something."""
        return sum(not place.idle.is_set() for place in self._places.values())

    def serves(self, key: str) -> bool:
        """Tell whether a worker is up that has the version with this key loaded."""
        return any(key in worker.models for worker in self._places)

    def has_idle(self, key: str) -> bool:
        """Tell whether :meth:`take_idle` would return a worker."""
        return any(place.takes(key) for place in self._places.values())

    def take_idle(self, key: str) -> WorkerProcess:
        """Return an idle worker that has `key` and mark it busy; give it back with :meth:`release`."""
        for worker, place in self._places.items():
            if place.takes(key):
                place.idle.clear()
                return worker
        raise LookupError(key)

    def release(self, worker: WorkerProcess) -> None:
        """Take back a worker whose batch is done."""
        place = self._places.get(worker)
        if place is not None:
            if worker.rss_bytes > self._settings.memory_limit_mb << 20:
                place.replace("memory")
            place.idle.set()
        self.on_change()

    async def _keep_place(self) -> None:
        place = await self._bring_up()
        while True:
            await place.due.wait()
            worker = place.worker
            if worker.end_reason != "load":
                _log.warning("worker is replaced", pool=self.name, pid=worker.pid, reason=worker.end_reason)
                self._metrics.worker_restarts.labels(self.name, worker.end_reason).inc()
            if worker.ended.is_set():
                successor = await self._bring_up()
            else:
                async with self._replacing:
                    successor = await self._bring_up()
                    place.retiring = True
                    await place.idle.wait()
                    await worker.stop()
            place.gone.set()
            place = successor

    async def _bring_up(self) -> Place:
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
            place = self._places[worker] = Place(worker)
            place.idle.set()
            if self.workers >= self.size:
                self._settled.set()
            self.on_change()
            return place

    async def _back_off(self, error: WorkerEndedError) -> None:
        _log.error("worker did not come up", pool=self.name, reason=str(error))
        self._failed_starts += 1
        if self._failed_starts >= _MOST_FAILED_STARTS and not self._places:
            self._broken.set()
        await asyncio.sleep(min(_FIRST_BACKOFF_S * 2**self._failed_starts, _LONGEST_BACKOFF_S))

    async def _load_models(self, worker: WorkerProcess) -> None:
        """Load what the pool holds; what joins it meanwhile comes along, what leaves it is left out."""
        while lacking := [
            state for key, state in self.models.items() if state.status != "failed" and key not in worker.models
        ]:
            await self._load_model(worker, lacking[0])
        for key in worker.models - self.models.keys():
            await worker.unload(key)

    async def _load_model(self, worker: WorkerProcess, state: ModelState) -> None:
        try:
            loaded = await worker.load(state.spec, _LOAD_TIMEOUT_S)
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
            state.status, state.description, state.signature = "ready", loaded.description, loaded.signature

    def _ended(self, worker: WorkerProcess) -> None:
        place = self._places.pop(worker, None)
        if place is not None:
            place.idle.set()
            place.due.set()

    def _show(self, metrics: Metrics) -> None:
        """Let `metrics` look at this pool whenever they are asked for."""
        gauge = metrics.workers
        gauge.labels(self.name, "busy").set_function(lambda: self.busy)
        gauge.labels(self.name, "idle").set_function(lambda: self.workers - self.busy)
        gauge.labels(self.name, "starting").set_function(lambda: max(self.size - self.workers, 0))
        resident = metrics.worker_rss_bytes.labels(self.name)
        resident.set_function(lambda: sum(worker.rss_bytes for worker in self._places))
