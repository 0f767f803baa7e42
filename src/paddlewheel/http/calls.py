"""What routes that call a model share: the caller's deadline and body, and work that ends when the caller leaves."""

from __future__ import annotations

import asyncio
import math
import re
import zlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from starlette.types import Receive, Scope

from paddlewheel.caller import TIMEOUT, deadline_after
from paddlewheel.config import Limits
from paddlewheel.errors import (
    CancelledByCallerError,
    InvalidArgumentError,
    PayloadTooLargeError,
    UnsupportedFormatError,
)
from paddlewheel.http.protocol import LEAVING
from paddlewheel.inference import InferenceRequest, InferenceResponse
from paddlewheel.service import Service

Result = TypeVar("Result")
_KEY: Final = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,254}")
_WINDOWS: Final = {"gzip": 31, "deflate": 15}
"""How zlib is told what to expect."""


def deadline_of(headers: Mapping[str, str], limits: Limits) -> float | None:
    """Return the deadline that the caller set with ``X-Request-Timeout`` (seconds), None without one."""
    text = headers.get(TIMEOUT)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    return deadline_after(seconds, limits, f"X-Request-Timeout is {text!r:.40}")


def idempotency_key(headers: Mapping[str, str]) -> str | None:
    """Return the key by which a job is made once (``Idempotency-Key``); raises :class:`InvalidArgumentError`."""
    key = headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidArgumentError("The Idempotency-Key is not well formed; expected 1 to 255 printable characters.")
    return key


def prefers_async(headers: Mapping[str, str]) -> bool:
    """Tell whether the caller would rather have a job than wait (``Prefer: respond-async``, RFC 7240)."""
    return any(part.strip() == "respond-async" for part in headers.get("prefer", "").split(","))


async def read_body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """Return the body of a request, unpacked if it came packed; raises :class:`PayloadTooLargeError` over `limit`."""
    chunks, more = [], True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    encoding = headers.get("content-encoding", "identity")
    if encoding == "identity":
        return body
    if encoding not in _WINDOWS:
        raise UnsupportedFormatError(f"The body has Content-Encoding '{encoding:.40}'; expected gzip or deflate.")
    unpacker = zlib.decompressobj(_WINDOWS[encoding])
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error:
        raise InvalidArgumentError(f"The body says that it is {encoding}, and is not.") from None
    if len(unpacked) > limit:
        raise PayloadTooLargeError(f"The body unpacks to more than {limit} bytes.")
    if not unpacker.eof:
        raise InvalidArgumentError(f"The body's {encoding} data is cut off.")
    return unpacked


async def infer(service: Service, request: InferenceRequest, scope: Scope) -> InferenceResponse:
    """Answer `request`; give it up and raise :class:`CancelledByCallerError` if the connection ends first."""
    submission = service.submit(request)
    leaving: set[Callable[[], None]] = scope[LEAVING]
    leaving.add(submission.leave)
    try:
        return await service.wait(submission)
    finally:
        leaving.discard(submission.leave)


async def unless_caller_leaves(scope: Scope, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`; cancel it and raise :class:`CancelledByCallerError` if the connection ends first."""
    leaving: set[Callable[[], object]] = scope.get(LEAVING, set())
    task = asyncio.current_task()
    assert task is not None, "a request is served in a task"
    left = False

    def leave() -> None:
        nonlocal left
        left = True
        task.cancel()

    leaving.add(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if not left:
            raise
        task.uncancel()
        raise CancelledByCallerError("The caller closed the connection.") from None
    finally:
        leaving.discard(leave)
