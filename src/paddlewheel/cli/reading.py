"""Reads many pictures through a service of this process: many at once, handed back in order."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddlewheel.cli.sources import Source
from paddlewheel.config import Settings
from paddlewheel.errors import PaddlewheelError
from paddlewheel.inference import InferenceRequest, Tensor, deadline_in
from paddlewheel.jobs.job import new_job_id
from paddlewheel.pipelines.ocr.body import page_body
from paddlewheel.service import Service

MODEL = "ocr"
_AHEAD_PER_WORKER = 4
_PATIENCE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Read:
    """A picture and what was read in it, or why nothing was: one of `body` and `error` is set."""

    source: Source
    encoded: bytes
    body: dict[str, Any] | None = None
    error: PaddlewheelError | None = None


async def read_all(
    service: Service, settings: Settings, sources: Sequence[Source], parameters: Mapping[str, Any]
) -> AsyncGenerator[Read, None]:
    """Yield what each source holds, in order; a few times as many as there are workers are in memory."""
    ahead = _AHEAD_PER_WORKER * max(1, sum(pool.workers for pool in service.models.pools.values()))
    ahead = min(ahead, settings.models[MODEL].batching.max_queue_size)
    tasks: deque[asyncio.Task[Read]] = deque()
    try:
        for source in sources:
            tasks.append(asyncio.create_task(_read(service, source, parameters)))
            if len(tasks) >= ahead:
                yield await tasks.popleft()
        while tasks:
            yield await tasks.popleft()
    finally:
        for task in tasks:
            task.cancel()


async def _read(service: Service, source: Source, parameters: Mapping[str, Any]) -> Read:
    encoded = b""
    try:
        encoded = await asyncio.to_thread(source.read)
        image = Tensor.from_elements("image", [encoded])
        call = InferenceRequest(new_job_id(time.time()), MODEL, (image,), parameters, deadline=deadline_in(_PATIENCE_S))
        return Read(source, encoded, body=page_body(await service.infer(call)))
    except PaddlewheelError as error:
        return Read(source, encoded, error=error)
