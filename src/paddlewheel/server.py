"""The composition root: builds service, jobs and edge from the settings; owns the order of start, drain and stop.

start   take both ports ─ serve (alive, not ready) ─ pull packs, start workers, load, warm up ─ ready
stop    SIGTERM ─ not ready ─ finish what was taken, refuse the rest ─ close connections ─ stop workers ─ exit 0
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import structlog
import uvicorn

from paddlewheel import catalog
from paddlewheel.config import Settings
from paddlewheel.errors import ConfigurationError, PaddlewheelError
from paddlewheel.grpc.edge import GrpcEdge
from paddlewheel.http.app import create_app
from paddlewheel.http.protocol import WatchfulProtocol
from paddlewheel.jobs import JobRunner, JobStore, MemoryJobStore, SqliteJobStore
from paddlewheel.service import Service
from paddlewheel.telemetry.metrics import Metrics

_CLOSE_CONNECTIONS_S = 2
_BACKLOG = 2048
_COLLECT_AFTER = 20_000
"""Objects that are made and not freed before the collector looks for cycles among the newest; Python's is 700."""

_log = structlog.stdlib.get_logger(__name__)


class _Edge(uvicorn.Server):
    """uvicorn without its signal handlers: when to stop is decided here."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def take_port(host: str, port: int, flag: str = "--port") -> socket.socket:
    """Return a listening socket; raises :class:`ConfigurationError` naming port and `flag` if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"Cannot listen on {host} port {port}: {error.strerror or error}. "
            f"Stop what uses it, or choose another with {flag} (0 takes a free one)."
        ) from None
    listener.setblocking(False)
    return listener


async def serve(
    settings: Settings,
    listener: socket.socket,
    *,
    on_listening: Callable[[int | None], None] = lambda _: None,
    on_ready: Callable[[Service], None] = lambda _: None,
    progress: catalog.Progress = lambda _: None,
) -> int:
    """Serve until SIGTERM or SIGINT and return the exit status.

    `on_listening` is called with the gRPC port, if there is one, before any model is loaded; `on_ready` once every
    model is loaded or has failed; `progress` hears of packs being pulled. Raises :class:`ConfigurationError` naming
    the gRPC port if it cannot be had.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Service(settings, Metrics()) as service:
        jobs = JobRunner(service, _job_store(settings), settings.jobs)
        async with jobs, _grpc_edge(service) as grpc_edge:
            on_listening(grpc_edge.port if grpc_edge else None)
            edge = _edge(settings, service, jobs)
            serving = asyncio.create_task(edge.serve(sockets=[listener]))
            loading = asyncio.create_task(_load(service, progress, on_ready))
            status = await _until_stopped(service, stop, loading)
            loading.cancel()
            draining = asyncio.create_task(_drain(service, jobs, grpc_edge))
            # A person who presses Ctrl-C again does not want to wait. SIGTERM may come twice by accident.
            loop.add_signal_handler(signal.SIGINT, draining.cancel)
            await asyncio.wait({draining})
            edge.should_exit = True
            if grpc_edge is not None:
                await grpc_edge.stop()
            await serving
    return status


@asynccontextmanager
async def _grpc_edge(service: Service) -> AsyncIterator[GrpcEdge | None]:
    """Serve gRPC for as long as the block runs, unless it is switched off."""
    settings = service.settings.server
    if settings.grpc_port == "off":
        yield None
        return
    # gRPC binds by itself; this is for the reason why it could not.
    take_port(settings.host, settings.grpc_port, "--grpc-port").close()
    edge = GrpcEdge(service)
    await edge.start(settings.host, settings.grpc_port)
    try:
        yield edge
    finally:
        await edge.stop()


def _job_store(settings: Settings) -> JobStore:
    jobs = settings.jobs
    if jobs.store == "memory":
        return MemoryJobStore(jobs.max_jobs, jobs.max_bytes)
    file = jobs.file or settings.server.data_dir / "jobs.sqlite"
    return SqliteJobStore(file, jobs.max_jobs, jobs.max_bytes)


def _edge(settings: Settings, service: Service, jobs: JobRunner) -> _Edge:
    config = uvicorn.Config(
        create_app(service, jobs),
        http=WatchfulProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Nothing here depends on the caller's address.
        proxy_headers=False,
        # It is only ever added to a clock, so fractions of a second hold.
        timeout_keep_alive=settings.server.keep_alive_s,  # type: ignore[arg-type]
        timeout_graceful_shutdown=_CLOSE_CONNECTIONS_S,
    )
    return _Edge(config)


async def _load(service: Service, progress: catalog.Progress, on_ready: Callable[[Service], None]) -> None:
    await service.load(progress)
    _spare_the_collector()
    if service.settings.strict and service.models.failures:
        raise next(iter(service.models.failures.values()))
    on_ready(service)


def _spare_the_collector() -> None:
    """Let the garbage collector skip what stays, and look less often: a twentieth more small calls a second."""
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 10, 10)


async def _until_stopped(service: Service, stop: asyncio.Event, loading: asyncio.Task[None]) -> int:
    """Wait for a signal (0), for a start that failed, or for workers that keep failing (1)."""
    signalled, broken = asyncio.create_task(stop.wait()), asyncio.create_task(service.broken.wait())
    try:
        await asyncio.wait({signalled, broken, loading}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done() and not loading.cancelled() and loading.exception() is not None:
            _explain(loading.exception())
            return 1
        await asyncio.wait({signalled, broken}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return 0
        _log.critical("workers keep failing to start; giving up")
        return 1
    finally:
        signalled.cancel()
        broken.cancel()


def _explain(error: BaseException | None) -> None:
    if isinstance(error, PaddlewheelError):
        _log.critical("the server does not start", reason=error.detail)
    else:
        _log.critical("the server does not start", exc_info=error)


async def _drain(service: Service, jobs: JobRunner, grpc_edge: GrpcEdge | None) -> None:
    """Finish what was taken, within the grace period; where no worker comes up any more, refuse it at once."""
    settings = service.settings.server
    grace_s = 0 if service.broken.is_set() else settings.drain_s
    _log.info("draining", grace_s=grace_s)
    service.begin_draining()
    if grace_s:
        await asyncio.sleep(settings.drain_delay_s)
    jobs.pause()
    if grpc_edge is not None:
        grpc_edge.end_streams()
    await service.drain(grace_s)
