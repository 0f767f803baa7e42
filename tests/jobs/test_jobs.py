"""Job ids, what is kept of requests and answers, and the runner over a real service."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.config import JobSettings, Settings
from paddlewheel.errors import ExpiredError, InvalidArgumentError, NotFoundError, UnavailableError
from paddlewheel.inference import DTYPES, Answer, InferenceRequest, InferenceResponse, Tensor, deadline_in
from paddlewheel.jobs import Job, JobRunner, JobStore, MemoryJobStore
from paddlewheel.jobs.job import new_job_id
from paddlewheel.jobs.payload import decode_request, decode_response, encode_request, encode_response
from paddlewheel.service import Service
from paddlewheel.telemetry.metrics import Metrics
from waiting import eventually

RAISES, ENDS = 13.0, 14.0
MODEL = {
    "pipeline": "tensor",
    "engine": "echo",
    "batching": {"max_batch_size": 1},
    "engine_options": {"fail_on": RAISES, "exit_on": ENDS, "delay_from_input": True},
}
SETTINGS = {"pool": {"default": {"workers": 1, "nice": 0}}, "models": {"echo": MODEL}}
TENSORS = st.sampled_from(["FP32", "INT64", "BOOL"]).flatmap(
    lambda datatype: st.builds(
        lambda name, values: Tensor.from_numpy(name, np.array(values).astype(DTYPES[datatype])),
        st.text(max_size=5),
        st.lists(st.integers(0, 1), max_size=5),
    )
)
PARAMETERS = st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5))


@asynccontextmanager
async def running(store: JobStore | None = None, **settings: Any) -> AsyncIterator[JobRunner]:
    """Run jobs over a service with one echo."""
    async with Service(Settings.model_validate(SETTINGS), Metrics()) as service:
        await service.load()
        kept = store or MemoryJobStore(max_jobs=100, max_bytes=10**6)
        async with JobRunner(service, kept, JobSettings(**settings)) as runner:
            yield runner


def request(value: float, timeout_s: float = 30) -> InferenceRequest:
    """Return a call of the echo."""
    tensor = Tensor.from_numpy("input", np.array([[value]], np.float32))
    return InferenceRequest(new_job_id(time.time()), "echo", (tensor,), deadline=deadline_in(timeout_s))


async def over(runner: JobRunner, job: Job, timeout_s: float = 20) -> Job:
    """Return a job once it is over."""
    return await eventually(lambda: runner.get(job.id), lambda seen: seen.finished, timeout_s, "the job is over")


def test_ids_are_uuids_of_version_7_in_order_of_time() -> None:
    """An id begins with its time, and the rest cannot be guessed."""
    ids = [new_job_id(1_700_000_000 + seconds) for seconds in range(20)]
    assert ids == sorted(ids)
    assert {(uuid.UUID(each).version, uuid.UUID(each).variant) for each in ids} == {(7, uuid.RFC_4122)}
    assert len({new_job_id(1_700_000_000) for _ in range(100)}) == 100


@given(st.lists(TENSORS, max_size=3), PARAMETERS, st.none() | st.text(max_size=5))
def test_requests_and_answers_are_kept_whole(
    tensors: list[Tensor], parameters: dict[str, Any], key: str | None
) -> None:
    """What is read back is what was written; a request's deadline is the job's affair."""
    sent = InferenceRequest("id", "m", tuple(tensors), parameters, "2", 1, 5.0, key, ("y",), {"y": 3})
    kept = decode_request(encode_request(sent), deadline=7.0)
    assert [bytes(each.data) for each in kept.inputs] == [bytes(each.data) for each in tensors]
    assert [(each.name, each.datatype, each.shape) for each in kept.inputs] == [
        (each.name, each.datatype, each.shape) for each in tensors
    ]
    assert (kept.parameters, kept.version, kept.deadline, kept.sticky_key) == (parameters, "2", 7.0, key)
    assert (kept.outputs, kept.classes) == (("y",), {"y": 3})
    answer = Answer(tuple(tensors), parameters, {"total": 1.5})
    read = decode_response(encode_response(InferenceResponse("id", "m", "1", answer)))
    assert [bytes(each.data) for each in read.answer.outputs] == [bytes(each.data) for each in tensors]
    assert (read.answer.parameters, read.answer.timing_ms) == (parameters, {"total": 1.5})


async def test_each_job_ends_with_its_own_answer_or_error() -> None:
    """One that succeeds, one whose model raises; what cannot be run, or is not known, leaves no job."""
    async with running() as runner:
        good, bad = [await over(runner, await runner.submit(request(value))) for value in (0.25, RAISES)]
        assert (good.status, good.attempts, good.done) == ("succeeded", 1, 1)
        assert (await runner.response(good)).answer.output("output").numpy().tolist() == [[0.25]]
        assert bad.status == "failed"
        assert bad.error is not None
        assert (bad.error.kind, bad.attempts) == ("InternalError", 1)
        with pytest.raises(InvalidArgumentError):
            await runner.submit(InferenceRequest("x", "echo", ()))
        with pytest.raises(NotFoundError):
            await runner.submit(InferenceRequest("x", "none", ()))
        with pytest.raises(NotFoundError):
            await runner.get("x")


async def test_a_job_that_ends_its_workers_is_tried_so_often_and_no_more() -> None:
    """It is dead after its attempts, with the reason; a job beside it loses none of its own."""
    async with running(max_attempts=2) as runner:
        killer, other = [await runner.submit(request(value)) for value in (ENDS, 0.1)]
        dead = await over(runner, killer)
        assert (dead.status, dead.attempts) == ("failed", 2)
        assert dead.error is not None
        assert dead.error.kind == "WorkerCrashedError"
        fine = await over(runner, other)
        assert (fine.status, fine.attempts) == ("succeeded", 1)


async def test_a_job_that_waits_too_long_fails_in_time() -> None:
    """Its deadline passes in the store while another runs: it fails then, and not when its turn comes."""
    async with running(concurrency=1) as runner:
        first = await runner.submit(request(2.0))
        began = time.monotonic()
        late = await over(runner, await runner.submit(request(0, timeout_s=0.5)))
        assert 0.4 < time.monotonic() - began < 1.2
        assert late.error is not None
        assert (late.status, late.attempts, late.error.kind) == ("failed", 0, "DeadlineExceededError")
        assert (await over(runner, first)).status == "succeeded"


async def test_an_interrupted_job_goes_back_and_runs_elsewhere() -> None:
    """A runner that stops gives back what it has; the next finishes it, and no attempt is lost."""
    store = MemoryJobStore(max_jobs=100, max_bytes=10**6)
    async with running(store) as runner:
        job = await runner.submit(request(1.0))
        await eventually(lambda: runner.get(job.id), lambda seen: seen.status == "running", 10, "it runs")
    assert (await store.get(job.id)).status == "queued"
    async with running(store) as runner:
        done = await over(runner, job)
        assert (done.status, done.attempts) == ("succeeded", 1)


async def test_a_lease_is_renewed_while_the_work_goes_on() -> None:
    """A job that runs for longer than a lease is begun once."""
    async with running(lease_s=0.3) as runner:
        done = await over(runner, await runner.submit(request(1.5)))
        assert (done.status, done.attempts, done.fence) == ("succeeded", 1, 1)


async def test_a_full_queue_costs_no_attempt() -> None:
    """More jobs than the model's queue takes: they wait in the store, and all are done."""
    settings = SETTINGS | {"models": {"echo": MODEL | {"batching": {"max_batch_size": 1, "max_queue_size": 2}}}}
    async with Service(Settings.model_validate(settings), Metrics()) as service:
        await service.load()
        store = MemoryJobStore(max_jobs=100, max_bytes=10**6)
        async with JobRunner(service, store, JobSettings(concurrency=8)) as runner:
            jobs = [await runner.submit(request(0.05)) for _ in range(12)]
            ended = [await over(runner, job, 30) for job in jobs]
    assert {(job.status, job.attempts) for job in ended} == {("succeeded", 1)}


async def test_calls_go_first_and_starve_no_job() -> None:
    """While calls keep the only worker busy a job waits behind them, and after its patience among them."""
    async with running(patience_s=1.0) as runner:
        service, stop = runner._service, asyncio.Event()
        answered: list[float] = []

        async def keep_calling() -> None:
            while not stop.is_set():
                await service.infer(request(0.05))
                answered.append(time.monotonic())

        callers = [asyncio.create_task(keep_calling()) for _ in range(3)]
        await eventually(lambda: _length(answered), lambda count: count > 3, 5, "calls are answered")
        began = time.monotonic()
        job = await over(runner, await runner.submit(request(0.05)), 10)
        took_s = time.monotonic() - began
        stop.set()
        await asyncio.gather(*callers)
    assert job.status == "succeeded"
    assert 1.0 < took_s < 2.0


async def _length(values: list[float]) -> int:
    return len(values)


async def test_a_job_is_seen_in_order_and_never_missed() -> None:
    """Looked at in a tight loop from its submission on, each is queued, then running, then succeeded."""

    async def watched(runner: JobRunner, job: Job) -> list[str]:
        seen = ["queued"]
        while seen[-1] != "succeeded":
            status = (await runner.get(job.id)).status
            seen += [status] if status != seen[-1] else []
            await asyncio.sleep(0)
        return seen

    async with running() as runner:
        jobs = [await runner.submit(request(0.01)) for _ in range(30)]
        histories = await asyncio.gather(*(watched(runner, job) for job in jobs))
    assert {tuple(history) for history in histories} <= {("queued", "running", "succeeded"), ("queued", "succeeded")}


async def test_a_result_expires() -> None:
    """After its time to live it is expired, and later unknown."""
    async with running(ttl_s=0.5) as runner:
        job = await runner.submit(request(0))
        done = await over(runner, job)
        await runner.response(done)

        async def standing() -> type[Exception] | None:
            try:
                await runner.get(job.id)
            except (ExpiredError, NotFoundError) as error:
                return type(error)
            return None

        assert await eventually(standing, bool, 1, "its time to live is over") is ExpiredError
        await eventually(standing, lambda seen: seen is NotFoundError, 5, "it is forgotten")


async def test_a_draining_server_takes_no_job() -> None:
    """Who is refused has no job."""
    async with running() as runner:
        await runner._service.drain(grace_s=1)
        with pytest.raises(UnavailableError, match="shutting down"):
            await runner.submit(request(1.0))
        assert not await runner._store.counts()
