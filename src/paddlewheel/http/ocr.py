"""``/ocr``: a picture in, its lines of text out, at once or later."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from paddlewheel.errors import ErrorRecord
from paddlewheel.http.calls import deadline_of, idempotency_key, infer, prefers_async
from paddlewheel.http.job_body import accepted
from paddlewheel.http.pictures import read_picture
from paddlewheel.http.problems import recorded_problem
from paddlewheel.http.schemas import PICTURE_BODY, PROBLEMS, OcrPage, PendingCall, SubmittedCall
from paddlewheel.inference import InferenceRequest, Tensor, deadline_in
from paddlewheel.jobs import JobRunner
from paddlewheel.jobs.job import new_job_id
from paddlewheel.pipelines.ocr.body import page_body
from paddlewheel.service import Service

MODEL: Final = "ocr"
_POLL_AFTER_S: Final = 1


def routes(service: Service, jobs: JobRunner) -> APIRouter:
    """Return the routes of OCR."""
    router = APIRouter(tags=["OCR"])
    limits = service.settings.limits

    @router.post(
        "/ocr",
        summary="Read the text in a picture",
        response_model=OcrPage,
        responses=PROBLEMS,
        openapi_extra=PICTURE_BODY,
    )
    async def recognise(request: Request) -> Response:
        with service.refusals(MODEL):
            picture, parameters = await read_picture(request, service.settings)
            deadline = deadline_of(request.headers, limits)
        if prefers_async(request.headers):
            call = _call(new_job_id(time.time()), picture, parameters, deadline)
            return accepted(
                await jobs.submit(call, key=idempotency_key(request.headers)), {"Preference-Applied": "respond-async"}
            )
        call = _call(request.state.request_id, picture, parameters, deadline)
        response = await infer(service, call, request.scope)
        return _json(page_body(response))

    @router.post(
        "/ocr/async",
        summary="Read the text in a picture, later",
        status_code=202,
        response_model=SubmittedCall,
        responses=PROBLEMS,
        openapi_extra=PICTURE_BODY,
    )
    async def submit(request: Request) -> Response:
        with service.refusals(MODEL):
            picture, parameters = await read_picture(request, service.settings)
            deadline = deadline_of(request.headers, limits) or deadline_in(service.settings.jobs.deadline_s)
        call = _call(new_job_id(time.time()), picture, parameters, deadline)
        job = await jobs.submit(call, key=idempotency_key(request.headers))
        url = f"/ocr/result/{job.id}"
        body = {"request_id": job.id, "status": "submitted", "status_url": url}
        return _json(body, 202, {"Location": url, "Retry-After": str(_POLL_AFTER_S)})

    @router.get(
        "/ocr/result/{request_id}",
        summary="Fetch the result of a later call",
        response_model=OcrPage,
        responses=PROBLEMS | {202: {"model": PendingCall}},
    )
    async def result(request_id: str, request: Request) -> Response:
        job = await jobs.get(request_id)
        if job.status == "succeeded":
            return _json(page_body(await jobs.response(job)))
        if job.error is not None:
            return recorded_problem(ErrorRecord(job.error.kind, job.error.detail), request.scope)
        return _json({"request_id": job.id, "status": job.status}, 202, {"Retry-After": str(_POLL_AFTER_S)})

    return router


def _call(request_id: str, picture: bytes, parameters: Mapping[str, Any], deadline: float | None) -> InferenceRequest:
    image = Tensor.from_elements("image", [picture])
    return InferenceRequest(request_id, MODEL, (image,), parameters, deadline=deadline)


def _json(body: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status, headers, "application/json; charset=utf-8")
