"""A job's changes as server-sent events: `status` whenever it is another one, then `completed` with the whole job.

The id of an event says how the job stood: a client that comes back with it (``Last-Event-ID``) hears what is new only.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Final

import orjson

from paddlewheel.errors import ExpiredError, NotFoundError
from paddlewheel.http.job_body import job_body, job_head
from paddlewheel.jobs import Job, JobRunner
from paddlewheel.service import Service

_LOOK_AGAIN_S: Final = 0.2
_KEEP_ALIVE_S: Final = 15.0


async def job_events(job_id: str, last_id: str | None, service: Service, jobs: JobRunner) -> AsyncIterator[bytes]:
    """Give the events of a job until it is over; a comment now and then keeps proxies from closing the connection."""
    spoke_at = time.monotonic()
    while True:
        try:
            job = await jobs.get(job_id)
            if (event_id := _id_of(job)) != last_id:
                yield await _event(job, event_id, service, jobs)
                last_id, spoke_at = event_id, time.monotonic()
            if job.finished:
                return
            await jobs.wait(job_id, _LOOK_AGAIN_S)
        except (ExpiredError, NotFoundError):
            return
        if time.monotonic() - spoke_at > _KEEP_ALIVE_S:
            yield b": still here\n\n"
            spoke_at = time.monotonic()


def _id_of(job: Job) -> str:
    return f"{job.fence}-{job.done}-{job.status}"


async def _event(job: Job, event_id: str, service: Service, jobs: JobRunner) -> bytes:
    name, body = ("completed", await job_body(job, service, jobs)) if job.finished else ("status", job_head(job))
    data = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (event_id.encode(), name.encode(), data)
