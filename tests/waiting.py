"""Waiting for what another process does: the one place where tests poll."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

_INTERVAL_S = 0.02


def wait_for(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Return once `condition` is true; fail with `what` when it is not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        Event().wait(_INTERVAL_S)
