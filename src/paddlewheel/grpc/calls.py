"""What holds for every call, whatever its method: id, deadline, limits of messages, errors, metrics.

Servicers are plain: a method takes a message and a :class:`Call` and returns a message, or raises the
:class:`~paddlewheel.errors.PaddlewheelError` that says why not. Here they become gRPC's handlers, which see bytes: so a
message that is too large or no message at all gets a text of ours, and one that is too large to be sent a status.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from paddlewheel import caller
from paddlewheel.caller import request_id
from paddlewheel.config import Limits
from paddlewheel.errors import InternalError, InvalidArgumentError, PaddlewheelError, UnavailableError
from paddlewheel.grpc.status import MessageTooLargeError, code_of, details_of
from paddlewheel.inference import deadline_in
from paddlewheel.telemetry.metrics import UNKNOWN, Metrics

Context = Any  # grpc.aio.ServicerContext, whose stubs want the messages' types that bytes do not have
_RESTART_RETRY_AFTER_S: Final = 1.0

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """A call as its servicer sees it; `deadline` is an instant of the monotonic clock, None if there is none."""

    id: str
    deadline: float | None
    metadata: Mapping[str, str]

    @property
    def sticky_key(self) -> str | None:
        """By what the caller's calls go to one version, if it said so."""
        return self.metadata.get(caller.STICKY_KEY)


Method = Callable[[Any, Call], Awaitable[Message]]
"""Takes a message, or for a stream of them an iterator, and returns a message."""
Send = Callable[[Message], Awaitable[None]]
StreamingMethod = Callable[[Any, Call, Send], Awaitable[None]]
"""Takes what a method takes, and sends as many messages as it likes, one at a time."""
Read = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Rpc:
    """A method of a service: how its messages are read, and who serves it."""

    descriptor: MethodDescriptor
    serve: Callable[..., Awaitable[Any]]
    """A :data:`Method`, or of a method that answers with a stream a :data:`StreamingMethod`."""
    read: Read

    @property
    def path(self) -> str:
        """What clients call it."""
        return f"/{self.descriptor.containing_service.full_name}/{self.descriptor.name}"

    @property
    def labels(self) -> tuple[str, str, str]:
        """The labels of its metrics: type, service, method."""
        kinds = {(False, False): "unary", (True, False): "client_stream", (False, True): "server_stream"}
        kind = kinds.get((self.descriptor.client_streaming, self.descriptor.server_streaming), "bidi_stream")
        return kind, self.descriptor.containing_service.full_name, self.descriptor.name


def rpcs(
    service: ServiceDescriptor, methods: Mapping[str, Method | StreamingMethod], reads: Mapping[str, Read] | None = None
) -> list[Rpc]:
    """Return the methods of `service`; `reads` are for messages that are not read as the descriptor says."""
    found = []
    for descriptor in service.methods:
        message_class = GetMessageClass(descriptor.input_type)
        read = (reads or {}).get(descriptor.name, message_class.FromString)
        found.append(Rpc(descriptor, methods[descriptor.name], read))
    return found


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc ships no types
    """Every method of the server, and an answer for calls of others."""

    def __init__(self, methods: list[Rpc], limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._started = cache(metrics.grpc_started.labels)
        self._handled = cache(metrics.grpc_handled.labels)
        self._seconds = cache(metrics.grpc_seconds.labels)
        self._handlers = {rpc.path: self._handler(rpc) for rpc in methods}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Return who handles a call."""
        return self._handlers.get(handler_call_details.method) or self._unknown(handler_call_details.method)

    def _handler(self, rpc: Rpc) -> grpc.RpcMethodHandler:
        descriptor = rpc.descriptor
        if descriptor.server_streaming:
            if descriptor.client_streaming:
                return grpc.stream_stream_rpc_method_handler(self._streaming(rpc))
            return grpc.unary_stream_rpc_method_handler(self._streaming(rpc))
        if descriptor.client_streaming:
            return grpc.stream_unary_rpc_method_handler(self._unary(rpc))
        return grpc.unary_unary_rpc_method_handler(self._unary(rpc))

    def _unary(self, rpc: Rpc) -> Any:
        labels, read = rpc.labels, self._reader(rpc)

        async def handle(given: Any, context: Context) -> bytes:
            async with self._observed(labels, context) as call:
                return self._written(await rpc.serve(read(rpc, given), call))
            raise AssertionError("an observed call returns or raises")

        return handle

    def _streaming(self, rpc: Rpc) -> Any:
        labels, read = rpc.labels, self._reader(rpc)

        async def handle(given: Any, context: Context) -> None:
            async def send(message: Message) -> None:
                await context.write(self._written(message))

            async with self._observed(labels, context) as call:
                await rpc.serve(read(rpc, given), call, send)

        return handle

    def _reader(self, rpc: Rpc) -> Callable[[Rpc, Any], Any]:
        return self._each_read if rpc.descriptor.client_streaming else self._read

    def _unknown(self, path: str) -> grpc.RpcMethodHandler:
        async def handle(_: Any, context: Context) -> None:
            async with self._observed((UNKNOWN, UNKNOWN, UNKNOWN), context):
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"There is no method '{path:.100}'.")

        return grpc.stream_stream_rpc_method_handler(handle)

    def _read(self, rpc: Rpc, data: bytes) -> Any:
        limit = self._limits.max_message_bytes
        if len(data) > limit:
            raise MessageTooLargeError(
                f"The message has {len(data)} bytes; at most {limit} are taken (setting limits.max_message_bytes)."
            )
        try:
            return rpc.read(data)
        except DecodeError:
            expected = rpc.descriptor.input_type.full_name
            raise InvalidArgumentError(f"The message cannot be read; expected a {expected}.") from None

    async def _each_read(self, rpc: Rpc, messages: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for data in messages:
            yield self._read(rpc, data)

    def _written(self, message: Message) -> bytes:
        size, limit = message.ByteSize(), self._limits.max_message_bytes
        if size > limit:
            raise MessageTooLargeError(
                f"The answer has {size} bytes; at most {limit} are sent (setting limits.max_message_bytes)."
            )
        return message.SerializeToString()

    @asynccontextmanager
    async def _observed(self, labels: tuple[str, str, str], context: Context) -> AsyncIterator[Call]:
        """Give a call to its servicer; count it, and end it with a status however the servicer ends."""
        began = time.monotonic()
        self._started(*labels).inc()
        call = _call(context, self._limits)
        context.set_trailing_metadata(_trailers(call))
        code = grpc.StatusCode.OK
        # Each call has a task and so a context of its own: nothing to unbind.
        structlog.contextvars.bind_contextvars(request_id=call.id)
        try:
            yield call
        except grpc.aio.AbortError:
            code = context.code()
            raise
        except asyncio.CancelledError:
            # gRPC cancels when the caller is gone; then nobody hears this. Any other reason must not leave it waiting.
            code = grpc.StatusCode.CANCELLED
            gone = UnavailableError("The server gave the call up.", retry_after_s=_RESTART_RETRY_AFTER_S)
            await _abort(context, call, gone)
        except PaddlewheelError as error:
            code = code_of(error)
            await _abort(context, call, error)
        except Exception as error:  # the caller must get a status, and nothing of the inside
            code = grpc.StatusCode.INTERNAL
            _log.error("call failed", method=labels[-1], request_id=call.id, exc_info=error)
            detail = f"The server failed; its log has the reason under request id {call.id}."
            await _abort(context, call, InternalError(detail))
        finally:
            self._handled(*labels, code.name).inc()
            self._seconds(*labels).observe(time.monotonic() - began)


def _call(context: Context, limits: Limits) -> Call:
    metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
    left_s = context.time_remaining()
    deadline = None if left_s is None else deadline_in(min(left_s, limits.max_deadline_s))
    return Call(request_id(metadata.get(caller.REQUEST_ID)), deadline, metadata)


def _trailers(call: Call) -> tuple[tuple[str, str], ...]:
    return ((caller.REQUEST_ID, call.id),)


async def _abort(context: Context, call: Call, error: PaddlewheelError) -> None:
    await context.abort(code_of(error), error.detail, (*_trailers(call), *details_of(error)))
