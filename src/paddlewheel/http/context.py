"""The outermost layer of the HTTP edge: what holds for every request, whatever its route.

Gives each request its id, binds the id to every log line, bounds the body before anything reads it, measures the
request, and tells clients to reconnect elsewhere while the server drains; what is not over when it stops is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddlewheel import caller
from paddlewheel.config import Limits
from paddlewheel.errors import CancelledByCallerError, InvalidArgumentError, PayloadTooLargeError, shutting_down
from paddlewheel.http.problems import respond
from paddlewheel.http.protocol import ARRIVED
from paddlewheel.telemetry.metrics import UNKNOWN, Metrics

_REQUEST_ID: Final = caller.REQUEST_ID.encode()
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestContext:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics, draining: Callable[[], bool]) -> None:
        self._app = app
        self._limits = limits
        self._seconds = cache(metrics.http_seconds.labels)
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        headers = dict(scope["headers"])
        request_id = caller.request_id(headers.get(_REQUEST_ID, b"").decode("latin-1"))
        scope.setdefault("state", {})["request_id"] = request_id
        body = _BoundedBody(receive, self._limits, scope, headers)
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                out = message["headers"] = [*message.get("headers", ()), (_REQUEST_ID, request_id.encode())]
                if self._draining() or not body.complete:
                    out.append((b"connection", b"close"))
            await send(message)

        # Each request has a task and so a context of its own: nothing to unbind.
        structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            await self._app(scope, body, send_with_id)
        except asyncio.CancelledError:
            if status:
                raise
            # The server has drained; what is left here still sends its body.
            await respond(shutting_down(), scope, receive, send_with_id)
        finally:
            self._observe(scope, status, time.monotonic() - began)

    def _observe(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNKNOWN)
        method = scope["method"] if scope["method"] in _METHODS else UNKNOWN
        self._seconds(method, route, str(status or 499)).observe(seconds)


class _BoundedBody:
    """The receive channel of one request; the body is bounded in bytes and in silence between its parts."""

    def __init__(self, receive: Receive, limits: Limits, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        self._receive = receive
        self._has_arrived: Callable[[], bool] = scope[ARRIVED]
        self._timeout_s = limits.receive_timeout_s
        self._setting = "max_message_bytes" if scope["path"].startswith("/v2/") else "max_body_bytes"
        self._limit: int = getattr(limits, self._setting)
        declared = headers.get(b"content-length", b"0")
        self._declared = int(declared) if declared.isdigit() else 0
        self._received = 0
        self.complete = not self._declared and b"transfer-encoding" not in headers

    async def __call__(self) -> Message:
        if self.complete:
            return await self._receive()
        self._check(self._declared)
        message = await self._receive() if self._has_arrived() else await self._receive_in_time()
        if message["type"] == "http.disconnect":
            raise CancelledByCallerError("The caller closed the connection before the body was complete.")
        self._received += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        self._check(self._received)
        return message

    async def _receive_in_time(self) -> Message:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._receive()
        except TimeoutError:
            raise InvalidArgumentError(
                f"No byte of the body came for {self._timeout_s:g} s (setting limits.receive_timeout_s)."
            ) from None

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise PayloadTooLargeError(
                f"The body has {size} bytes or more; at most {self._limit} are taken (setting limits.{self._setting})."
            )
