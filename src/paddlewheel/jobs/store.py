"""Where jobs are kept: what every store does.

A store is bounded in jobs and in bytes. Each method is one atomic step; what a step makes of a job is decided by the
job's own pure transitions. Instants are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from paddlewheel.errors import NotFoundError, ResourceExhaustedError
from paddlewheel.jobs.job import Job

Change = Callable[[Job], Job | None]
"""Returns a job as it is from now on, or None to leave it as it is."""
FULL_RETRY_AFTER_S: Final = 10.0


class JobStore(Protocol):
    """Keeps jobs, what they were called with, and what came of them."""

    async def open(self) -> None:
        """Begin; raises :class:`ConfigurationError` if the store cannot be used."""
        ...

    async def close(self) -> None:
        """End; what is kept stays."""
        ...

    async def add(self, job: Job, request: bytes) -> Job:
        """Keep a new job, for good once this returns, and return it; or the one that has its key already.

        Raises :class:`ResourceExhaustedError` when there is no room.
        """
        ...

    async def get(self, job_id: str) -> Job:
        """Return a job; raises :class:`NotFoundError`."""
        ...

    async def request(self, job_id: str) -> bytes:
        """Return what a job was called with; raises :class:`NotFoundError`."""
        ...

    async def result(self, job_id: str) -> bytes:
        """Return what came of a job; raises :class:`NotFoundError`."""
        ...

    async def claim(self, now: float, lease_s: float) -> Job | None:
        """Take up the job whose turn it is (see :meth:`Job.due`): the highest priority, then the oldest."""
        ...

    async def change(self, job_id: str, change: Change, result: bytes | None = None) -> Job | None:
        """Change a job and keep its `result` with it; returns the job if it was changed.

        What a job was called with is forgotten once it has succeeded.
        """
        ...

    async def sweep(self, now: float, keep_s: float) -> None:
        """Fail waiting jobs whose deadline has passed; forget what is past its time to live.

        That there was such a job is forgotten `keep_s` later.
        """
        ...

    async def page(self, before: str | None, limit: int, status: str | None, model: str | None) -> list[Job]:
        """Return the newest jobs whose id lies before `before`, the newest first; ids are in order of time."""
        ...

    async def counts(self) -> Mapping[str, int]:
        """Return how many jobs have each status."""
        ...


def store_is_full(max_jobs: int, max_bytes: int) -> ResourceExhaustedError:
    """Return the error for a job that finds no room."""
    return ResourceExhaustedError(
        f"The job store is full (at most {max_jobs} jobs and {max_bytes} bytes, settings jobs.max_jobs and "
        "jobs.max_bytes).",
        retry_after_s=FULL_RETRY_AFTER_S,
    )


def no_such_job(job_id: str) -> NotFoundError:
    """Return the error for an id that no job has."""
    return NotFoundError(f"There is no call '{job_id:.100}'.")
