"""A place in a pool: one worker, and what is waited for before the next takes its place."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from paddlewheel.workers.process import EndReason, WorkerProcess


@dataclass(slots=True, eq=False)
class Place:
    """A worker in the pool."""

    worker: WorkerProcess
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    due: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker has ended or is to be replaced."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the successor has taken over."""
    retiring: bool = False

    def takes(self, key: str) -> bool:
        """Whether the worker could run a batch of the version with this key now."""
        return self.idle.is_set() and not self.retiring and key in self.worker.models

    def replace(self, reason: EndReason) -> None:
        """Let a new worker take over, for `reason`."""
        if not self.due.is_set():
            self.worker.end_reason = reason
            self.due.set()
