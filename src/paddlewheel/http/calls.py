"""What routes that call a model share: the caller's deadline, and work that ends when the caller leaves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from paddlewheel.config import Limits
from paddlewheel.errors import CancelledByCallerError, InvalidArgumentError
from paddlewheel.inference import deadline_in

TIMEOUT_HEADER = "X-Request-Timeout"
Result = TypeVar("Result")


def deadline_of(request: Request, limits: Limits) -> float | None:
    """Return the deadline that the caller set with ``X-Request-Timeout`` (seconds), None without one."""
    text = request.headers.get(TIMEOUT_HEADER)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    return deadline_after(seconds, limits, f"{TIMEOUT_HEADER} is {text!r:.40}")


def deadline_after(seconds: float, limits: Limits, given: str) -> float:
    """Return the deadline that lies `seconds` from now; raises :class:`InvalidArgumentError` about what was `given`."""
    if not 0 < seconds <= limits.max_deadline_s:
        raise InvalidArgumentError(f"{given}; expected more than 0 and at most {limits.max_deadline_s:g} seconds.")
    return deadline_in(seconds)


async def unless_caller_leaves(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`; cancel it and raise :class:`CancelledByCallerError` if the connection ends first.

    The body of `request` must have been read: what comes next on its channel is the end of the connection.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_until_disconnect(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise CancelledByCallerError("The caller closed the connection.")
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _until_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
