"""The models of a running server: brings them up at start, and loads, replaces and unloads them afterwards.

Owns the pools and their schedulers. A new version is loaded and warm before calls get to it, and the one that it
replaces finishes what it has before it goes. A version that cannot be loaded leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Self

import structlog

from paddlewheel import catalog
from paddlewheel.batching import Scheduler, ServedVersion
from paddlewheel.config import Settings
from paddlewheel.errors import ConflictError, ModelLoadError, PaddlewheelError, from_record
from paddlewheel.pipelines import ModelSpec
from paddlewheel.repository.resolution import Resolved, folder_of, resolve
from paddlewheel.repository.served_model import ServedModel
from paddlewheel.repository.served_models import ServedModels
from paddlewheel.telemetry.metrics import Metrics
from paddlewheel.workers import ModelState, ProcessPool, Setup, fork_server

_log = structlog.stdlib.get_logger(__name__)


class _GivenUpError(Exception):
    """Nobody waits any more for what is being pulled."""


class ModelRepository(ServedModels):
    """Models and their versions; start with :meth:`load_all`, inside ``async with``."""

    def __init__(self, settings: Settings, metrics: Metrics, broken: asyncio.Event) -> None:
        super().__init__(settings.models, folder_of(settings))
        self._settings = settings
        self._metrics = metrics
        self._broken = broken
        self._generations = itertools.count(1)
        self._running = AsyncExitStack()
        self._tasks: set[asyncio.Task[Any]] = set()
        # Models are changed one after the other: each change takes the pool through all of its workers.
        self._changing = asyncio.Lock()
        self.on_change: list[Callable[[], None]] = []
        """Called whenever a model may have become ready, or may not be any more."""

    async def __aenter__(self) -> Self:
        """Begin; no model is loaded yet."""
        await self._running.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop every worker."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._running.aclose()

    async def load_all(self, progress: catalog.Progress = lambda _: None) -> None:
        """Pull what is missing and start the pools; returns when every model is loaded or has failed."""
        control = self._settings.repository.control
        if self._folder is not None and control != "explicit":
            self._models |= {name: ServedModel(name) for name in self._folder.names() if name not in self._models}
        seen = {name: self._folder.state(name) for name in self._folder.names()} if self._folder else {}
        resolved = await self._resolve_all(progress)
        self._running.enter_context(fork_server(spec.engine for each in resolved for spec in each.specs.values()))
        async with self._changing:
            await self._start(resolved)
        if self._folder is not None and control == "poll":
            self._begin(self._poll_forever(seen))

    async def _resolve_all(self, progress: catalog.Progress) -> list[Resolved]:
        """Look the models up in a thread, for pulling blocks; it ends soon after this call is cancelled."""
        given_up = threading.Event()

        def report(step: catalog.Step) -> None:
            if given_up.is_set():
                raise _GivenUpError
            progress(step)

        def resolve_all() -> list[Resolved]:
            return [found for name in tuple(self._models) if (found := self._try_resolve(name, report)) is not None]

        try:
            return await asyncio.to_thread(resolve_all)
        finally:
            given_up.set()

    def _try_resolve(self, name: str, progress: catalog.Progress) -> Resolved | None:
        try:
            return resolve(name, self._settings, progress)
        except PaddlewheelError as error:
            self._models[name].failures = {"": error}
            _log.error("model cannot be served", model=name, reason=error.detail)
        return None

    async def _start(self, resolved: Sequence[Resolved]) -> None:
        """Start each pool with all of its models at once; they can be called as soon as one worker has them."""
        for pool in self._settings.pool:
            mine = [each for each in resolved if self._settings.pool_of(each.settings) == pool]
            specs = [spec for each in mine for spec in each.specs.values()]
            if specs:
                scheduler = await self._start_pool(pool, specs)
                for each in mine:
                    self._put_in_place(
                        each, scheduler, [scheduler.pool.models[spec.key] for spec in each.specs.values()]
                    )
        for each in resolved:
            model = self._models[each.name]
            model.failures |= each.failures
            if model.scheduler is not None:
                for state in await model.scheduler.pool.loaded(list(each.specs.values())):
                    if state.error is not None:
                        del model.versions[state.spec.version]
                        model.failures[state.spec.version] = state.error
            model.was_ready = model.ready
        self._changed()

    async def _start_pool(self, name: str, specs: Sequence[ModelSpec]) -> Scheduler:
        settings, telemetry = self._settings.pool[name], self._settings.telemetry
        setup = Setup(nice=settings.nice, log_level=telemetry.log_level, log_format=telemetry.log_format)
        pool = ProcessPool(name, settings, specs, setup=setup, metrics=self._metrics, broken=self._broken)
        scheduler = self._schedulers[name] = Scheduler(pool, self._metrics)
        await self._running.enter_async_context(pool)
        await self._running.enter_async_context(scheduler)
        return scheduler

    async def load(self, name: str) -> None:
        """Load the model called `name`, or what is new of it; returns when its new versions serve.

        Raises :class:`NotFoundError`, :class:`ConflictError` if models are loaded at start only, or what a version
        failed with; the versions that served before serve on then. The load goes on if this call is cancelled.
        """
        self._check_control()
        await asyncio.shield(self._begin(self._load(name)))

    async def unload(self, name: str) -> None:
        """Give up the model called `name`: it takes no more calls, and goes when it has answered those it has.

        Raises :class:`NotFoundError` and :class:`ConflictError` as :meth:`load` does.
        """
        self._check_control()
        self._known(name)
        await asyncio.shield(self._begin(self._unload(name)))

    def _check_control(self) -> None:
        if self._settings.repository.control == "none":
            raise ConflictError(
                "Models are loaded at start only; start with --model-control explicit (setting repository.control)."
            )

    async def _load(self, name: str) -> None:
        async with self._changing:
            resolved = await asyncio.to_thread(resolve, name, self._settings)
            # One that never was loaded does not take the server's readiness away before it is.
            model = self._models.setdefault(name, ServedModel(name, wanted=False))
            try:
                await self._update(model, resolved)
            finally:
                model.incoming = set()
                self._changed()
        if model.failures:
            raise from_record(next(reversed(model.failures.values())).record())

    async def _update(self, model: ServedModel, resolved: Resolved) -> None:
        pool = self._settings.pool_of(resolved.settings)
        if model.scheduler is not None and model.scheduler.pool.name != pool and model.versions:
            raise ModelLoadError(
                f"Model '{model.name}' cannot move to pool '{pool}' while it is loaded; unload it first."
            )
        new = [
            replace(spec, generation=next(self._generations))
            for version, spec in resolved.specs.items()
            if version not in model.versions or model.origins.get(version) != resolved.origins[version]
        ]
        model.incoming = {spec.version for spec in new}
        self._changed()
        scheduler, states = await self._load_into(pool, new)
        good = [state for state in states if state.error is None]
        model.failures = {**resolved.failures, **{each.spec.version: each.error for each in states if each.error}}
        for state in good:
            self._retire(model, state.spec.version)
        self._put_in_place(resolved, scheduler, good)
        if not model.failures:
            for version in model.versions.keys() - resolved.specs.keys():
                self._retire(model, version)
        model.wanted = model.wanted or bool(model.versions)
        model.was_ready = model.was_ready or model.ready

    async def _load_into(self, pool: str, specs: Sequence[ModelSpec]) -> tuple[Scheduler, list[ModelState]]:
        scheduler = self._schedulers.get(pool)
        if scheduler is None:
            scheduler = await self._start_pool(pool, specs)
            return scheduler, await scheduler.pool.loaded(specs)
        return scheduler, await scheduler.pool.load(specs) if specs else []

    def _put_in_place(self, resolved: Resolved, scheduler: Scheduler, states: Sequence[ModelState]) -> None:
        model = self._models[resolved.name]
        model.scheduler, model.weights = scheduler, dict(resolved.settings.weights)
        for state in states:
            version = state.spec.version
            served = model.versions[version] = ServedVersion(state, resolved.settings.batching)
            model.origins[version] = resolved.origins[version]
            scheduler.add(served)
        model.versions = dict(sorted(model.versions.items(), key=lambda item: (item[0].zfill(20), item[0])))

    def _retire(self, model: ServedModel, version: str) -> None:
        """Let a version finish what it has, and go; calls do not get to it any more."""
        served = model.versions.pop(version, None)
        if served is not None:
            model.origins.pop(version, None)
            model.leaving[version] = served
            self._begin(self._finish(model, version, served))

    async def _finish(self, model: ServedModel, version: str, served: ServedVersion) -> None:
        scheduler = model.scheduler
        assert scheduler is not None, "a version that was served has a pool"
        await scheduler.remove(served)
        await scheduler.pool.unload(served.spec.key)
        if model.leaving.get(version) is served:
            del model.leaving[version]

    async def _unload(self, name: str) -> None:
        async with self._changing:
            model = self._models[name]
            for version in list(model.versions):
                self._retire(model, version)
            model.failures = {}
            model.wanted = model.was_ready = False
            self._changed()

    async def _poll_forever(self, seen: Mapping[str, object]) -> None:
        """Follow the folder: what was read last of each model is in `seen`."""
        folder = self._folder
        assert folder is not None, "only a folder is polled"
        while True:
            await asyncio.sleep(self._settings.repository.poll_s)
            try:
                now = await asyncio.to_thread(lambda: {name: folder.state(name) for name in folder.names()})
            except OSError as error:  # somebody is at work in it
                _log.warning("model repository cannot be read; it is looked at again", reason=str(error))
                continue
            for name in now.keys() | seen.keys():
                if now.get(name) != seen.get(name) and name not in self._settings.models:
                    await self._follow(name, gone=name not in now)
            seen = dict(now)

    async def _follow(self, name: str, *, gone: bool) -> None:
        try:
            if gone:
                await self._unload(name)
                del self._models[name]
            else:
                await self._load(name)
        except PaddlewheelError as error:
            _log.error("model was not loaded", model=name, reason=error.detail)
            self._models.setdefault(name, ServedModel(name, wanted=False)).failures.setdefault("", error)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _changed(self) -> None:
        for listener in self.on_change:
            listener()
