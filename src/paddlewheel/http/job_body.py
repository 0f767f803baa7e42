"""A job as clients read it: its fields, its result as the synchronous call would have it; the answer to its making."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from starlette.responses import Response

from paddlewheel.errors import NotFoundError, from_record
from paddlewheel.http.json_tensors import write_tensor
from paddlewheel.inference import InferenceResponse
from paddlewheel.jobs import Job, JobRunner
from paddlewheel.pipelines.ocr.body import page_body
from paddlewheel.service import Service

_POLL_AFTER_S: Final = 1


def accepted(job: Job, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer to a call that has become a job."""
    url = f"/v1/jobs/{job.id}"
    headers = {"Location": url, "Retry-After": str(_POLL_AFTER_S), **(headers or {})}
    return json_response({**job_head(job), "status_url": url}, 202, headers)


async def job_body(job: Job, service: Service, jobs: JobRunner) -> dict[str, Any]:
    """Return a job with its result; raises :class:`ExpiredError` if that has just been swept."""
    body = job_head(job)
    if job.status == "succeeded":
        body["result"] = _result(await jobs.response(job), service)
    return body


def job_head(job: Job) -> dict[str, Any]:
    """Return a job without its result."""
    error = from_record(job.error) if job.error is not None and job.status == "failed" else None
    return {
        "id": job.id,
        "model": job.model,
        "status": job.status,
        "progress": {"done": job.done, "total": job.total},
        "attempts": job.attempts,
        "created_at": _instant(job.created_at),
        "started_at": _instant(job.started_at),
        "completed_at": _instant(job.completed_at),
        "expires_at": _instant(job.expires_at),
        "result": None,
        "error": error and {"code": error.code, "detail": error.detail, "retryable": error.retryable},
        "metadata": dict(job.metadata),
        "webhook_status": "none",
    }


def _result(response: InferenceResponse, service: Service) -> dict[str, Any]:
    """Return an answer as the synchronous call would have it: a page of text, or tensors."""
    try:
        pipeline = service.models.describe(response.model).spec.pipeline
    except NotFoundError:
        pipeline = "tensor"
    if pipeline == "ocr":
        return page_body(response)
    outputs = [write_tensor(tensor, names_for_nan=True) for tensor in response.answer.outputs]
    return {"model_name": response.model, "model_version": response.version, "outputs": outputs}


def _instant(seconds: float | None) -> str | None:
    """Return an instant as RFC 3339 has it, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def json_response(body: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return plain data, arrays included, as an answer."""
    return Response(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), status, headers, "application/json")
