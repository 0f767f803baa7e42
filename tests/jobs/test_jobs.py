"""Job ids, the store in memory, and the runner over a real service."""

from __future__ import annotations

import asyncio
import uuid

import numpy as np
import pytest

from paddlewheel.config import JobSettings, Settings
from paddlewheel.errors import ExpiredError, InternalError, NotFoundError, ResourceExhaustedError
from paddlewheel.inference import InferenceRequest, Tensor, deadline_in
from paddlewheel.jobs import Job, JobRunner, MemoryJobStore
from paddlewheel.jobs.job import new_job_id
from paddlewheel.service import Service
from paddlewheel.telemetry.metrics import Metrics

SETTINGS = {
    "pool": {"default": {"workers": 1, "nice": 0}},
    "models": {"echo": {"pipeline": "tensor", "engine": "echo", "engine_options": {"fail_on": 13}}},
}


def test_ids_are_uuids_of_version_7_in_order_of_time() -> None:
    """An id begins with its time, and the rest cannot be guessed."""
    ids = [new_job_id(1_700_000_000 + seconds) for seconds in range(20)]
    assert ids == sorted(ids)
    assert {(uuid.UUID(each).version, uuid.UUID(each).variant) for each in ids} == {(7, uuid.RFC_4122)}
    assert len({new_job_id(1_700_000_000) for _ in range(100)}) == 100


async def test_the_store_is_bounded_by_what_can_still_be_fetched() -> None:
    """A full store refuses; a job past its time to live makes room."""
    store = MemoryJobStore(max_jobs=2)
    first, second, third = (Job(str(number), "m", created_at=0) for number in range(3))
    await store.add(first, now=0)
    await store.add(second, now=0)
    with pytest.raises(ResourceExhaustedError, match=r"jobs\.max_jobs"):
        await store.add(third, now=0)
    await store.put(first.failed(InternalError("x"), now=0, ttl_s=5))
    with pytest.raises(ResourceExhaustedError):
        await store.add(third, now=4.9)
    await store.add(third, now=5)
    assert await store.counts() == {"queued": 2}


async def test_expired_is_not_unknown() -> None:
    """After its time to live a job is expired, swept or not; a job that never was is not found."""
    store = MemoryJobStore(max_jobs=10)
    job = Job("a", "m", created_at=0)
    await store.add(job, now=0)
    await store.put(job.failed(InternalError("x"), now=0, ttl_s=5))
    assert (await store.get("a", now=4.9)).status == "failed"
    with pytest.raises(ExpiredError):
        await store.get("a", now=5)
    await store.sweep(now=5)
    with pytest.raises(ExpiredError):
        await store.get("a", now=6)
    with pytest.raises(NotFoundError):
        await store.get("b", now=0)


async def test_the_runner_keeps_the_answer_or_the_error() -> None:
    """Each job ends with its own answer or its own error; what is refused leaves no job."""
    async with Service(Settings.model_validate(SETTINGS), Metrics()) as service:
        await service.load()
        store = MemoryJobStore(max_jobs=10)
        async with JobRunner(service, store, JobSettings()) as runner:
            jobs = [await runner.submit(_request(value)) for value in (7.0, 13.0)]
            await service.drain(grace_s=30)
            while {(await runner.get(job.id)).status for job in jobs} & {"queued", "running"}:
                await _turn()
            good, bad = [await runner.get(job.id) for job in jobs]
            assert good.response is not None
            assert good.response.answer.output("output").numpy().tolist() == [[7.0]]
            assert bad.error is not None
            assert bad.status == "failed"
            with pytest.raises(Exception, match="shutting down"):
                await runner.submit(_request(1.0))
            assert sum((await store.counts()).values()) == 2


async def _turn() -> None:
    """Let the tasks of the runner have their turn."""
    await asyncio.sleep(0)


def _request(value: float) -> InferenceRequest:
    tensor = Tensor.from_numpy("input", np.array([[value]], np.float32))
    return InferenceRequest(new_job_id(value), "echo", (tensor,), deadline=deadline_in(30))
