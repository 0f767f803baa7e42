"""The outermost layer of the HTTP edge: what holds for every request, whatever its route.

Gives each request its id, binds the id to every log line, bounds the body before anything reads it, measures the
request, and tells clients to reconnect elsewhere while the server drains.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Callable
from typing import Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddlewheel.config import Limits
from paddlewheel.errors import InvalidArgumentError, PayloadTooLargeError
from paddlewheel.http.problems import respond
from paddlewheel.telemetry.metrics import UNKNOWN, Metrics

REQUEST_ID_HEADER: Final = "X-Request-Id"
_WELL_FORMED_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestContext:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics, draining: Callable[[], bool]) -> None:
        self._app = app
        self._limits = limits
        self._metrics = metrics
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        headers = Headers(scope=scope)
        given = headers.get(REQUEST_ID_HEADER, "")
        request_id = given if _WELL_FORMED_ID.fullmatch(given) else str(uuid.uuid4())
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                out = MutableHeaders(scope=message)
                out[REQUEST_ID_HEADER] = request_id
                if self._draining():
                    out["Connection"] = "close"
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._serve(scope, receive, send_with_id, headers)
            finally:
                self._observe(scope, status, time.monotonic() - began)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        declared = headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self._limits.max_body_bytes:
            await respond(self._too_large(int(declared)), scope, receive, send, close=True)
            return
        await self._app(scope, _BoundedBody(receive, self._limits, self._too_large), send)

    def _too_large(self, size: int) -> PayloadTooLargeError:
        limit = self._limits.max_body_bytes
        return PayloadTooLargeError(
            f"The body has {size} bytes or more; at most {limit} are taken (setting limits.max_body_bytes)."
        )

    def _observe(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNKNOWN)
        method = scope["method"] if scope["method"] in _METHODS else UNKNOWN
        self._metrics.http_seconds.labels(method, route, str(status or 499)).observe(seconds)


class _BoundedBody:
    """The receive channel of one request; the body is bounded in bytes and in silence between its parts."""

    def __init__(self, receive: Receive, limits: Limits, too_large: Callable[[int], PayloadTooLargeError]) -> None:
        self._receive = receive
        self._limits = limits
        self._too_large = too_large
        self._received = 0
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout(self._limits.receive_timeout_s):
                message = await self._receive()
        except TimeoutError:
            timeout_s = self._limits.receive_timeout_s
            raise InvalidArgumentError(
                f"No byte of the body came for {timeout_s:g} s (setting limits.receive_timeout_s)."
            ) from None
        self._received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._received > self._limits.max_body_bytes:
            raise self._too_large(self._received)
        return message
