"""Runs jobs: hands each to the service like any caller would, and stores what came of it."""

from __future__ import annotations

import asyncio
import time
from typing import Self

import structlog

from paddlewheel.config import JobSettings
from paddlewheel.errors import InternalError, PaddlewheelError
from paddlewheel.inference import InferenceRequest
from paddlewheel.jobs.job import Job
from paddlewheel.jobs.store import JobStore
from paddlewheel.service import Service, Submission

_LONGEST_SWEEP_INTERVAL_S = 60.0
_STATUSES = ("queued", "running", "succeeded", "failed")

_log = structlog.stdlib.get_logger(__name__)


class JobRunner:
    """Takes jobs, waits for their answers; start and stop it with ``async with``."""

    def __init__(self, service: Service, store: JobStore, settings: JobSettings) -> None:
        self._service = service
        self._store = store
        self._settings = settings
        self._calls: dict[str, Submission] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Begin to sweep."""
        self._sweeper = asyncio.create_task(self._sweep_forever())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; jobs that still run are dropped with the store in memory."""
        for task in (self._sweeper, *self._tasks):
            task.cancel()
        await asyncio.gather(self._sweeper, *self._tasks, return_exceptions=True)

    async def submit(self, request: InferenceRequest) -> Job:
        """Take `request`, whose id becomes the job's; raises what :meth:`Service.submit` raises."""
        job = Job(request.id, request.model, created_at=time.time())
        with self._service.refusals(request.model):
            await self._store.add(job, job.created_at)
        try:
            submission = self._service.submit(request)
        except PaddlewheelError:
            await self._store.remove(job.id)
            raise
        self._calls[job.id] = submission
        task = asyncio.create_task(self._finish(job, submission))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    async def get(self, job_id: str) -> Job:
        """Return a job as it stands; raises :class:`NotFoundError` or :class:`ExpiredError`."""
        job = await self._store.get(job_id, time.time())
        call = self._calls.get(job_id)
        return job.running() if call is not None and call.dispatched_at is not None else job

    async def _finish(self, job: Job, submission: Submission) -> None:
        ttl_s = self._settings.ttl_s
        try:
            response = await self._service.wait(submission)
        except PaddlewheelError as error:
            finished = job.failed(error, time.time(), ttl_s)
        except Exception:  # a fault of ours must not leave the job running for ever
            _log.exception("job failed", request_id=job.id)
            finished = job.failed(InternalError("The job failed; the server's log has the reason."), time.time(), ttl_s)
        else:
            finished = job.succeeded(response, time.time(), ttl_s)
        await self._store.put(finished)
        del self._calls[job.id]

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(min(self._settings.ttl_s / 2, _LONGEST_SWEEP_INTERVAL_S))
            await self._store.sweep(time.time())

    async def observe(self) -> None:
        """Bring the metric of kept jobs up to date."""
        counts = await self._store.counts()
        for status in _STATUSES:
            self._service.metrics.jobs.labels(status).set(counts.get(status, 0))
