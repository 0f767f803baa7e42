"""Waiting for what another process does: the one place where tests poll."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from threading import Event
from typing import TypeVar

_INTERVAL_S = 0.02
Seen = TypeVar("Seen")


def wait_for(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Return once `condition` is true; fail with `what` when it is not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        Event().wait(_INTERVAL_S)


async def eventually(
    look: Callable[[], Awaitable[Seen]], wanted: Callable[[Seen], object], timeout_s: float, what: str
) -> Seen:
    """Return the first thing that `look` sees and that is `wanted`; fail with `what` if there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not wanted(seen := await look()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}; last seen: {seen}"
        await asyncio.sleep(_INTERVAL_S)
    return seen
