"""``/v1/jobs``: asynchronous calls as things of their own: made, looked at, waited for, cancelled, run again."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlewheel.caller import STICKY_KEY
from paddlewheel.http.calls import idempotency_key
from paddlewheel.http.infer import Call
from paddlewheel.http.job_body import accepted, job_body, job_head, json_response
from paddlewheel.http.job_events import job_events
from paddlewheel.http.pictures import decode_base64
from paddlewheel.http.schemas import PROBLEMS, JobOrder
from paddlewheel.inference import InferenceRequest, Tensor, deadline_in
from paddlewheel.jobs import JobRunner, Status
from paddlewheel.jobs.job import new_job_id
from paddlewheel.service import Service

_EVENTS: Final = "text/event-stream; charset=utf-8"
_MOST_ON_A_PAGE: Final = 100
_LONGEST_WAIT_S: Final = 60
_WAIT: Final = re.compile(r"(?:^|[,;\s])wait=(\d{1,4})(?=$|[,;\s])")


def routes(service: Service, jobs: JobRunner) -> APIRouter:
    """Return the routes under ``/v1/jobs``."""
    router = APIRouter(prefix="/v1/jobs", tags=["Jobs"])

    @router.post("", summary="Make a job", status_code=202, responses=PROBLEMS)
    async def make(order: JobOrder, request: Request) -> Response:
        with service.refusals(order.model):
            call = _call(order, service, request.headers)
        key = idempotency_key(request.headers)
        wishes = {"ttl_s": order.ttl_s, "max_attempts": order.max_attempts, "priority": order.priority}
        given = {name: value for name, value in wishes.items() if value is not None}
        return accepted(await jobs.submit(call, metadata=order.metadata, key=key, **given))

    @router.get("", summary="The newest jobs", responses=PROBLEMS)
    async def page(
        status: Annotated[Status | None, Query(description="Only those that stand so.")] = None,
        model: Annotated[str | None, Query(description="Only those of this model.")] = None,
        cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_ON_A_PAGE)] = 50,
    ) -> Response:
        found = await jobs.page(cursor, limit, status, model)
        following = found[-1].id if len(found) == limit else None
        return json_response({"jobs": [job_head(job) for job in found], "next": following})

    @router.get("/{job_id}", summary="A job, with its result; `Prefer: wait=30` waits for it", responses=PROBLEMS)
    async def get(job_id: str, request: Request) -> Response:
        seconds = _wanted_wait_s(request.headers)
        job = await jobs.wait(job_id, seconds)
        headers = {"Preference-Applied": f"wait={seconds}"} if seconds else {}
        return json_response(await job_body(job, service, jobs), headers=headers)

    @router.get("/{job_id}/events", summary="A job's changes, as server-sent events", responses=PROBLEMS)
    async def events(job_id: str, request: Request) -> Response:
        await jobs.get(job_id)
        stream = job_events(job_id, request.headers.get("last-event-id"), service, jobs)
        # A proxy that gathers answers would hold them back.
        return StreamingResponse(stream, 200, {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}, _EVENTS)

    @router.post("/{job_id}/cancel", summary="Cancel a job, waiting or running", responses=PROBLEMS)
    @router.delete("/{job_id}", summary="Cancel a job, waiting or running", responses=PROBLEMS)
    async def cancel(job_id: str) -> Response:
        return json_response(await job_body(await jobs.cancel(job_id), service, jobs))

    @router.post("/{job_id}/retry", summary="Run a job again that failed or was cancelled", responses=PROBLEMS)
    async def retry(job_id: str) -> Response:
        return json_response(await job_body(await jobs.retry(job_id), service, jobs))

    return router


def _call(order: JobOrder, service: Service, headers: Mapping[str, str]) -> InferenceRequest:
    job_id, limits = new_job_id(time.time()), service.settings.limits
    seconds = service.settings.jobs.deadline_s if order.deadline_s is None else order.deadline_s
    deadline = deadline_in(seconds)
    if service.models.describe(order.model, order.version).spec.pipeline == "ocr":
        picture = Tensor.from_elements("image", [decode_base64(order.input.get("image"))])
        return InferenceRequest(
            job_id, order.model, (picture,), order.parameters, version=order.version, deadline=deadline
        )
    body = orjson.dumps({**order.input, "parameters": order.parameters})
    own = {STICKY_KEY: headers[STICKY_KEY]} if STICKY_KEY in headers else {}
    request = Call(body, own, limits).request(job_id, order.model, order.version)
    return msgspec.structs.replace(request, deadline=deadline)


def _wanted_wait_s(headers: Mapping[str, str]) -> int:
    """Return how long the caller would wait (RFC 7240), as far as it is granted."""
    found = _WAIT.search(headers.get("prefer", ""))
    return min(int(found[1]), _LONGEST_WAIT_S) if found else 0
