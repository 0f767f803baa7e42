"""Jobs in this process's memory; they end with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from paddlewheel.jobs.job import Job
from paddlewheel.jobs.store import Change, no_such_job, store_is_full

Kept = TypeVar("Kept")


class MemoryJobStore:
    """A store for tests, and for servers that need not outlive their jobs."""

    def __init__(self, max_jobs: int, max_bytes: int) -> None:
        self._max_jobs = max_jobs
        self._max_bytes = max_bytes
        self._jobs: dict[str, Job] = {}
        self._requests: dict[str, bytes] = {}
        self._results: dict[str, bytes] = {}

    async def open(self) -> None:
        """Do nothing: it is there."""

    async def close(self) -> None:
        """Do nothing: it goes with the process."""

    async def add(self, job: Job, request: bytes) -> Job:
        """Keep a new job."""
        if job.key is not None:
            for each in self._jobs.values():
                if each.key == job.key:
                    return each
        kept = sum(map(len, self._requests.values())) + sum(map(len, self._results.values()))
        live = sum(each.status != "expired" for each in self._jobs.values())
        if live >= self._max_jobs or kept + len(request) > self._max_bytes:
            raise store_is_full(self._max_jobs, self._max_bytes)
        self._jobs[job.id], self._requests[job.id] = job, request
        return job

    async def get(self, job_id: str) -> Job:
        """Return a job."""
        return self._known(job_id, self._jobs)

    async def request(self, job_id: str) -> bytes:
        """Return what a job was called with."""
        return self._known(job_id, self._requests)

    async def result(self, job_id: str) -> bytes:
        """Return what came of a job."""
        return self._known(job_id, self._results)

    async def claim(self, now: float, lease_s: float) -> Job | None:
        """Take up the job whose turn it is."""
        due = [job for job in self._jobs.values() if job.due(now)]
        if not due:
            return None
        first = min(due, key=lambda job: (job.priority, job.created_at, job.id))
        job = self._jobs[first.id] = first.claimed(now, lease_s)
        return job

    async def change(self, job_id: str, change: Change, result: bytes | None = None) -> Job | None:
        """Change a job."""
        job = change(self._known(job_id, self._jobs))
        if job is None:
            return None
        self._jobs[job_id] = job
        if result is not None:
            self._results[job_id] = result
        if job.status == "succeeded":
            self._requests.pop(job_id, None)
        return job

    async def sweep(self, now: float, keep_s: float) -> None:
        """Forget what is past its time."""
        for job in list(self._jobs.values()):
            if job.late_at is not None and job.late_at <= now:
                self._jobs[job.id] = job.late(now)
            elif job.past(now) and job.status != "expired":
                self._jobs[job.id] = job.expired()
                self._requests.pop(job.id, None)
                self._results.pop(job.id, None)
            elif job.status == "expired" and job.past(now - keep_s):
                del self._jobs[job.id]

    async def page(self, before: str | None, limit: int, status: str | None, model: str | None) -> list[Job]:
        """Return the newest jobs."""
        found = [
            job
            for job in self._jobs.values()
            if (before is None or job.id < before) and status in {None, job.status} and model in {None, job.model}
        ]
        return sorted(found, key=lambda job: job.id, reverse=True)[:limit]

    async def counts(self) -> Mapping[str, int]:
        """Return how many jobs have each status."""
        return Counter(job.status for job in self._jobs.values())

    @staticmethod
    def _known(job_id: str, kept: Mapping[str, Kept]) -> Kept:
        try:
            return kept[job_id]
        except KeyError:
            raise no_such_job(job_id) from None
