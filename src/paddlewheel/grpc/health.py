"""The gRPC health protocol: the server under "", and each model under its name.

Statuses are looked up when they are asked for, since a model is lost with its last worker, whatever was said before.
"""

from __future__ import annotations

import asyncio
from typing import Final

from grpc_health.v1 import health_pb2

from paddlewheel.errors import NotFoundError
from paddlewheel.grpc.calls import Call, Rpc, Send, rpcs
from paddlewheel.service import Service

SERVICE: Final = health_pb2.DESCRIPTOR.services_by_name["Health"]
_LOOK_AGAIN_S: Final = 1.0
_Response = health_pb2.HealthCheckResponse


class Health:
    """Answers checks; `services` are those that stand and fall with the server."""

    def __init__(self, service: Service, services: frozenset[str], closing: asyncio.Event) -> None:
        self._service = service
        self._services = services | {""}
        self._closing = closing
        self._changed = asyncio.Event()
        service.models.on_change.append(self._wake)

    def rpcs(self) -> list[Rpc]:
        """Return the methods of the service."""
        return rpcs(SERVICE, {"Check": self._check, "Watch": self._watch})

    def _status(self, name: str) -> int | None:
        if name in self._services:
            ready = self._service.ready
        elif name in self._service.models:
            ready = self._service.model_ready(name)
        else:
            return None
        return int(_Response.SERVING if ready else _Response.NOT_SERVING)

    async def _check(self, request: health_pb2.HealthCheckRequest, _: Call) -> health_pb2.HealthCheckResponse:
        status = self._status(request.service)
        if status is None:
            raise NotFoundError(f"There is no service or model '{request.service:.100}'.")
        return _Response(status=status)

    async def _watch(self, request: health_pb2.HealthCheckRequest, _: Call, send: Send) -> None:
        """Send the status, and again whenever it is another one, until the caller leaves or the server stops."""
        last: int | None = None
        while not self._closing.is_set():
            changed = self._changed
            status = self._status(request.service)
            shown = _Response.SERVICE_UNKNOWN if status is None else status
            if shown != last:
                await send(_Response(status=shown))
                last = shown
                continue
            try:
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await changed.wait()
            except TimeoutError:
                continue

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
