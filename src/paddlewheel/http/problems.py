"""Errors as HTTP answers: RFC 9457 problem details, or the Open Inference Protocol's shape under ``/v2``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddlewheel.errors import ErrorRecord, InternalError, InvalidArgumentError, PaddlewheelError, from_record

_log = structlog.stdlib.get_logger(__name__)


def install(app: FastAPI) -> None:
    """Make every error that leaves a route of `app` a problem."""

    async def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, PaddlewheelError)
        return problem(error, request.scope)

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _http_problem(error, request.scope)

    async def on_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        return problem(InvalidArgumentError(f"The request is not well formed: {faults}."), request.scope)

    async def on_fault(request: Request, error: Exception) -> Response:
        _log.error("request failed", path=request.scope.get("path"), exc_info=error)
        detail = f"The server failed; its log has the reason under request id {_request_id(request.scope)}."
        return problem(InternalError(detail), request.scope)

    app.add_exception_handler(PaddlewheelError, on_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(Exception, on_fault)


async def respond(error: PaddlewheelError, scope: Scope, receive: Receive, send: Send) -> None:
    """Send `error` from outside of the application's routes."""
    await problem(error, scope)(scope, receive, send)


def problem(error: PaddlewheelError, scope: Scope) -> Response:
    """Return `error` as the answer to the request of `scope`."""
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(math.ceil(error.retry_after_s), 1))
    body = problem_body(error, scope)
    return _answer(error.http_status, body, error.detail, scope, headers)


def problem_body(error: PaddlewheelError, scope: Scope) -> dict[str, Any]:
    """Return `error` as problem details."""
    return {
        "type": "about:blank",
        "title": error.title,
        "status": error.http_status,
        "detail": error.detail,
        "instance": scope.get("path", ""),
        "code": error.code,
        "request_id": _request_id(scope),
        "retryable": error.retryable,
    }


def recorded_problem(record: ErrorRecord, scope: Scope) -> Response:
    """Return the error that a job ended with."""
    return problem(from_record(record), scope)


_HTTP_CODES: Mapping[int, str] = {404: "NOT_FOUND", 405: "INVALID_ARGUMENT"}
_HTTP_DETAILS: Mapping[int, str] = {
    404: "There is no such route; GET /docs lists the routes.",
    405: "This route does not take that method; GET /docs lists the routes.",
}


def _http_problem(error: HTTPException, scope: Scope) -> Response:
    detail = _HTTP_DETAILS.get(error.status_code, str(error.detail))
    body = problem_body(InvalidArgumentError(detail), scope) | {
        "title": str(error.detail),
        "status": error.status_code,
        "code": _HTTP_CODES.get(error.status_code, "INVALID_ARGUMENT"),
    }
    return _answer(error.status_code, body, detail, scope, error.headers)


def _answer(
    status: int, body: dict[str, Any], detail: str, scope: Scope, headers: Mapping[str, str] | None
) -> Response:
    if scope.get("path", "").startswith("/v2"):
        return Response(orjson.dumps({"error": detail}), status, headers, "application/json")
    return Response(orjson.dumps(body), status, headers, "application/problem+json")


def _request_id(scope: Scope) -> str:
    return str(scope.get("state", {}).get("request_id", ""))
