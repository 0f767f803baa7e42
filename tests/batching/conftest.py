"""What tests of queues need: requests that wait, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from paddlewheel.batching import QueuedRequest
from paddlewheel.inference import InferenceRequest

MakeQueued = Callable[..., QueuedRequest]


@pytest.fixture
def queued() -> Iterator[MakeQueued]:
    """Return a function that makes requests to put into a queue."""
    loop = asyncio.new_event_loop()

    def make(
        name: str = "request", *, priority: int = 1, bucket: str = "a", rows: int = 1, deadline: float | None = None
    ) -> QueuedRequest:
        request = InferenceRequest(name, "model", (), priority=priority, deadline=deadline)
        return QueuedRequest(request, bucket, 0.0, loop.create_future(), rows)

    yield make
    loop.close()
