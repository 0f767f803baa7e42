"""Where jobs are kept: the protocol, and the store in memory.

A store is bounded; it forgets finished jobs when their time to live has passed, and for as long again it remembers
that they existed, so that a late caller hears "expired" and not "unknown".
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from paddlewheel.errors import ExpiredError, NotFoundError, ResourceExhaustedError
from paddlewheel.jobs.job import Job

_FULL_RETRY_AFTER_S = 10.0


class JobStore(Protocol):
    """Keeps jobs; `now` is in seconds since the epoch."""

    async def add(self, job: Job, now: float) -> None:
        """Keep a new job; raises :class:`ResourceExhaustedError` when the store is full."""
        ...

    async def put(self, job: Job) -> None:
        """Replace the job of the same id."""
        ...

    async def remove(self, job_id: str) -> None:
        """Forget a job, if it is there."""
        ...

    async def get(self, job_id: str, now: float) -> Job:
        """Return a job; raises :class:`NotFoundError` or :class:`ExpiredError`."""
        ...

    async def sweep(self, now: float) -> None:
        """Forget the jobs whose time to live has passed."""
        ...

    async def counts(self) -> dict[str, int]:
        """Return how many jobs have each status."""
        ...


class MemoryJobStore:
    """Jobs in this process's memory; they end with it."""

    def __init__(self, max_jobs: int) -> None:
        self._max_jobs = max_jobs
        self._jobs: dict[str, Job] = {}
        self._expired: OrderedDict[str, None] = OrderedDict()

    async def add(self, job: Job, now: float) -> None:
        """Keep a new job."""
        if len(self._jobs) >= self._max_jobs:
            await self.sweep(now)
        if len(self._jobs) >= self._max_jobs:
            raise ResourceExhaustedError(
                f"The job store is full ({self._max_jobs} jobs, setting jobs.max_jobs).",
                retry_after_s=_FULL_RETRY_AFTER_S,
            )
        self._jobs[job.id] = job

    async def put(self, job: Job) -> None:
        """Replace the job of the same id."""
        self._jobs[job.id] = job

    async def remove(self, job_id: str) -> None:
        """Forget a job."""
        self._jobs.pop(job_id, None)

    async def get(self, job_id: str, now: float) -> Job:
        """Return a job."""
        job = self._jobs.get(job_id)
        if job_id in self._expired or (job is not None and job.expired(now)):
            raise ExpiredError(f"The result of '{job_id}' is past its time to live.")
        if job is None:
            raise NotFoundError(f"There is no call '{job_id:.100}'.")
        return job

    async def sweep(self, now: float) -> None:
        """Forget the jobs whose time to live has passed."""
        for job in [job for job in self._jobs.values() if job.expired(now)]:
            del self._jobs[job.id]
            self._expired[job.id] = None
        while len(self._expired) > self._max_jobs:
            self._expired.popitem(last=False)

    async def counts(self) -> dict[str, int]:
        """Return how many jobs have each status."""
        counts: dict[str, int] = {}
        for job in self._jobs.values():
            counts[job.status] = counts.get(job.status, 0) + 1
        return counts
