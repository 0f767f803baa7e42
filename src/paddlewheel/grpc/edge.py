"""Puts the gRPC edge together: services, port, and its end."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection, reflection_pb2

from paddlewheel.grpc import health, model_service, open_inference
from paddlewheel.grpc.calls import Call, Handlers, Rpc, Send, rpcs
from paddlewheel.grpc.health import Health
from paddlewheel.grpc.model_service import ModelService
from paddlewheel.grpc.open_inference import OpenInference
from paddlewheel.service import Service

_REFLECTION: Final = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
_LARGEST: Final = (1 << 31) - 1
_MIN_PING_INTERVAL_MS: Final = 10_000
_CLOSE_CONNECTIONS_S: Final = 2.0


class GrpcEdge:
    """The gRPC server in front of a service; it must be made and used on one event loop."""

    def __init__(self, service: Service) -> None:
        self.port = 0
        """Where it listens, once started."""
        self._closing = asyncio.Event()
        limits = service.settings.limits
        served = {open_inference.SERVICE.full_name, model_service.SERVICE.full_name}
        methods = [
            *OpenInference(service, self._closing).rpcs(),
            *ModelService(service).rpcs(),
            *Health(service, frozenset(served), self._closing).rpcs(),
            *_reflection({*served, health.SERVICE.full_name, _REFLECTION.full_name}),
        ]
        self._server = grpc.aio.server(
            options=[
                # Over the limit a call gets our text, which names the setting. gRPC refuses twice as much unread.
                ("grpc.max_receive_message_length", min(2 * limits.max_message_bytes, _LARGEST)),
                ("grpc.max_send_message_length", _LARGEST),
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
            ]
        )
        self._server.add_generic_rpc_handlers((Handlers(methods, limits, service.metrics),))

    async def start(self, host: str, port: int) -> None:
        """Listen on `port`, or on a free one if it is 0; raises RuntimeError if it cannot be had."""
        self.port = self._server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        await self._server.start()

    def end_streams(self) -> None:
        """Let streams take no more; each ends when what it sent before is answered."""
        self._closing.set()

    async def stop(self) -> None:
        """Take no more calls; those that are not over soon are cut off."""
        self._closing.set()
        await self._server.stop(_CLOSE_CONNECTIONS_S)


def _reflection(names: set[str]) -> list[Rpc]:
    pool = DescriptorPool()
    for known in (open_inference.SERVICE, model_service.SERVICE, health.SERVICE, _REFLECTION):
        pool.AddSerializedFile(known.file.serialized_pb)
    servicer = reflection.aio.ReflectionServicer(sorted(names), pool=pool)

    async def info(requests: object, _: Call, send: Send) -> None:
        async for response in servicer.ServerReflectionInfo(requests, None):
            await send(response)

    return rpcs(_REFLECTION, {"ServerReflectionInfo": info})
