"""Runs jobs: takes them from the store, hands each to the service like any caller would, and keeps what came of it.

    submit ─ admit ─ store ─ 202            (kept before it is acknowledged)
    store ─ claim ─ service.infer ─ finish | retry | fail

As many jobs are under way as keep the workers busy; the others wait in the store, behind every synchronous call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import msgspec
import structlog

from paddlewheel.config import JobSettings
from paddlewheel.errors import (
    ConflictError,
    ExpiredError,
    InternalError,
    KeyReusedError,
    NotFoundError,
    PaddlewheelError,
)
from paddlewheel.inference import InferenceRequest, InferenceResponse
from paddlewheel.jobs.job import Job
from paddlewheel.jobs.payload import decode_request, decode_response, digest_of, encode_request, encode_response
from paddlewheel.jobs.retrying import after_error
from paddlewheel.jobs.store import Change, JobStore
from paddlewheel.service import Service, Submission

_LOOK_AGAIN_S: Final = 1.0
"""How often the store is looked at for jobs that became due without anybody saying so."""
_SWEEP_INTERVAL_S: Final = 0.25
_BEHIND_CALLS: Final = 2
"""The priority with which jobs wait in a model's queue: behind calls whose callers wait."""
_CAN_RETRY: Final = ("failed", "cancelled")
_STATUSES: Final = ("queued", "running", "succeeded", "failed", "cancelled")

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Attempt:
    """A job that was claimed, and its request once that waits or runs."""

    job: Job
    submission: Submission | None = None


class JobRunner:
    """Takes jobs, and runs them; start and stop it with ``async with``."""

    def __init__(self, service: Service, store: JobStore, settings: JobSettings) -> None:
        self._service = service
        self._store = store
        self._settings = settings
        self._places = asyncio.Semaphore(settings.concurrency)
        self._added = asyncio.Event()
        self._attempts: dict[str, _Attempt] = {}
        """Of the jobs that were claimed here and are not settled."""
        self._settled = asyncio.Event()
        """Set, and replaced, whenever a job may be over."""
        self._running: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Open the store and begin."""
        await self._store.open()
        self._loops = [asyncio.create_task(self._run_forever()), asyncio.create_task(self._sweep_forever())]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; jobs that still run go back into the store."""
        for task in (*self._loops, *self._running):
            task.cancel()
        await asyncio.gather(*self._loops, *self._running, return_exceptions=True)
        for attempt in list(self._attempts.values()):
            await self._settle(attempt, Job.given_back)
        await self._store.close()

    def pause(self) -> None:
        """Take up no more jobs: they stay in the store."""
        for task in self._loops:
            task.cancel()

    async def submit(self, request: InferenceRequest, **wishes: Any) -> Job:
        """Keep `request`, whose id becomes the job's, and run it later; `wishes` are fields of :class:`Job`.

        With a `key` among them that is known already, the job that has it is returned. Raises what
        :meth:`Service.check` raises, :class:`ResourceExhaustedError` when the store is full, and
        :class:`KeyReusedError` if the key was for another request.
        """
        now = time.time()
        with self._service.refusals(request.model):
            self._service.check(request)
            left_s = self._settings.deadline_s if request.deadline is None else request.deadline - time.monotonic()
            usual = Job(
                id=request.id,
                model=request.model,
                created_at=now,
                deadline=now + left_s,
                ttl_s=self._settings.ttl_s,
                max_attempts=self._settings.max_attempts,
            )
            digest = digest_of(request) if wishes.get("key") is not None else b""
            job = msgspec.structs.replace(usual, digest=digest, **wishes)
            kept = await self._store.add(job, encode_request(request))
            if kept.digest != job.digest:
                raise KeyReusedError("The Idempotency-Key came before with another request; expected a new one.")
        self._added.set()
        return kept

    async def get(self, job_id: str) -> Job:
        """Return a job as it stands; raises :class:`NotFoundError` or :class:`ExpiredError`.

        It is queued until a worker has it, wherever it waits.
        """
        job = await self._store.get(job_id)
        if job.status == "expired" or job.past(time.time()):
            raise ExpiredError(f"The result of '{job_id}' is past its time to live.")
        attempt = self._attempts.get(job_id)
        runs = attempt is not None and attempt.submission is not None and attempt.submission.dispatched_at is not None
        return msgspec.structs.replace(job, status="queued") if job.status == "running" and not runs else job

    async def response(self, job: Job) -> InferenceResponse:
        """Return the answer of a job that succeeded; raises :class:`ExpiredError` if it was swept meanwhile."""
        try:
            return decode_response(await self._store.result(job.id))
        except NotFoundError:
            raise ExpiredError(f"The result of '{job.id}' is past its time to live.") from None

    async def page(
        self, before: str | None = None, limit: int = 50, status: str | None = None, model: str | None = None
    ) -> list[Job]:
        """Return the newest jobs before the one with the id `before`, the newest first."""
        return await self._store.page(before, limit, status, model)

    async def wait(self, job_id: str, seconds: float) -> Job:
        """Return a job once it is over, or as it stands after `seconds`; raises as :meth:`get`."""
        until = time.monotonic() + seconds
        while True:
            settled = self._settled
            job = await self.get(job_id)
            left_s = until - time.monotonic()
            if job.finished or left_s <= 0:
                return job
            try:
                async with asyncio.timeout(left_s):
                    await settled.wait()
            except TimeoutError:
                continue

    async def cancel(self, job_id: str) -> Job:
        """Cancel a job, waiting or running, and return it; one that is over stays as it is. Raises as :meth:`get`."""
        await self.get(job_id)
        now = time.time()
        await self._store.change(job_id, lambda job: None if job.finished else job.cancelled(now))
        attempt = self._attempts.get(job_id)
        if attempt is not None and attempt.submission is not None:
            attempt.submission.leave()
        self._tell()
        return await self.get(job_id)

    async def retry(self, job_id: str) -> Job:
        """Run a job that failed or was cancelled again, and return it; raises :class:`ConflictError` for others."""
        job, now = await self.get(job_id), time.time()
        again = await self._store.change(job_id, lambda job: job.again(now) if job.status in _CAN_RETRY else None)
        if again is None:
            raise ConflictError(f"The job is {job.status}; only one that failed or was cancelled can be retried.")
        self._added.set()
        return again

    async def observe(self) -> None:
        """Bring the metric of kept jobs up to date."""
        counts = await self._store.counts()
        for status in _STATUSES:
            self._service.metrics.jobs.labels(status).set(counts.get(status, 0))

    async def _run_forever(self) -> None:
        while True:
            await self._places.acquire()
            try:
                job = await self._next()
            except Exception:  # a disk that fails now may not for ever
                _log.exception("the job store failed; it is tried again")
                self._places.release()
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            task = asyncio.create_task(self._run(self._attempts[job.id]))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._places.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a job could not be settled; it is tried again when its lease is over", exc_info=error)

    async def _next(self) -> Job:
        """Claim the next job, once there is one."""
        while True:
            self._added.clear()
            job = await self._claim()
            if job is not None:
                return job
            try:
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await self._added.wait()
            except TimeoutError:
                continue

    async def _claim(self) -> Job | None:
        """Claim a job; a claim that is under way when this is cancelled is waited for, so that it is not forgotten."""
        claiming = asyncio.ensure_future(self._store.claim(time.time(), self._settings.lease_s))
        try:
            job = await asyncio.shield(claiming)
        finally:
            job = await claiming
            if job is not None:
                self._attempts[job.id] = _Attempt(job)
        return job

    async def _run(self, attempt: _Attempt) -> None:
        """Make one attempt, and keep what came of it, unless somebody else has the job by then."""
        job, result = attempt.job, None
        renewing = asyncio.create_task(self._renew_forever(job))
        change: Callable[[Job], Job]
        try:
            result = encode_response(await self._answer(attempt))
            change = partial(Job.succeeded, now=time.time())
        except PaddlewheelError as error:
            change = after_error(job, error, time.time())
        except Exception:  # a fault of ours must not leave the job running for ever
            _log.exception("job failed", request_id=job.id)
            fault = InternalError("The job failed; the server's log has the reason under its id.")
            change = partial(Job.failed, error=fault, now=time.time())
        finally:
            renewing.cancel()
        await self._settle(attempt, change, result)

    async def _answer(self, attempt: _Attempt) -> InferenceResponse:
        job = attempt.job
        if job.attempts > job.max_attempts:
            raise InternalError(f"The job was begun {job.max_attempts} times, and whoever ran it ended each time.")
        deadline = time.monotonic() + job.deadline - time.time()
        request = decode_request(await self._store.request(job.id), deadline)
        levels = self._service.models.describe(request.model, request.version).batching.priority_levels
        submission = self._service.submit(msgspec.structs.replace(request, priority=min(_BEHIND_CALLS, levels)))
        attempt.submission = submission
        promotion = asyncio.get_running_loop().call_later(self._settings.patience_s, submission.promote)
        try:
            return await self._service.wait(submission)
        finally:
            promotion.cancel()

    async def _settle(self, attempt: _Attempt, change: Callable[[Job], Job], result: bytes | None = None) -> None:
        job = attempt.job
        kept = await self._store.change(job.id, _if_held(job, change), result)
        if self._attempts.get(job.id) is attempt:
            del self._attempts[job.id]
        self._tell()
        if kept is None:
            _log.info("job is not ours any more; what came of it is dropped", request_id=job.id, fence=job.fence)

    def _tell(self) -> None:
        """Wake those who wait for a job to be over."""
        self._settled.set()
        self._settled = asyncio.Event()

    async def _renew_forever(self, job: Job) -> None:
        lease_s = self._settings.lease_s
        while True:
            await asyncio.sleep(lease_s / 3)
            await self._store.change(job.id, _if_held(job, partial(Job.renewed, until=time.time() + lease_s)))

    async def _sweep_forever(self) -> None:
        ttl_s = self._settings.ttl_s
        while True:
            await asyncio.sleep(_SWEEP_INTERVAL_S)
            try:
                await self._store.sweep(time.time(), ttl_s)
            except Exception:  # likewise
                _log.exception("the job store could not be swept; it is tried again")
                await asyncio.sleep(_LOOK_AGAIN_S)


def _if_held(job: Job, change: Callable[[Job], Job]) -> Change:
    """Return `change`, for as long as the claim of `job` is the latest."""
    return lambda kept: change(kept) if kept.holds(job.fence) else None
