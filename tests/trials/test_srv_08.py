"""SRV-08: the queue's limit is exact, and its time-out fires on time, while the only worker is busy."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest

from conftest import RunningServer, StartServer
from paddlewheel.config import Batching, JobSettings, ModelSettings, PoolSettings, Settings
from paddlewheel.errors import ResourceExhaustedError
from paddlewheel.inference import InferenceRequest, Tensor, deadline_in
from paddlewheel.jobs import JobRunner, MemoryJobStore
from paddlewheel.service import Service
from paddlewheel.telemetry.metrics import Metrics
from trials.calls import Caller, Reply, calling, message, over_each_protocol, rows_of, stream_on
from waiting import eventually

SLOW_S = 5.0
TIMEOUT_S = 0.5
QUEUE = 3


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> RunningServer:
    """Return a server with one worker, a model that takes five seconds, and a queue of three."""
    return start_server(f"""
[pool.default]
workers = 1
nice = 0
[models.slow]
pipeline = "tensor"
engine = "echo"
[models.slow.batching]
max_batch_size = 1
max_queue_size = {QUEUE}
default_timeout_microseconds = {round(TIMEOUT_S * 1e6)}
[models.slow.engine_options]
delay_s = {SLOW_S}
""")


@over_each_protocol
async def test_three_wait_three_are_refused_at_once(server: RunningServer, over: str) -> None:
    """With one running, six more within 100 ms: exactly three are refused at once, three wait and get 504 on time."""

    async def timed(caller: Caller, value: float) -> tuple[float, Reply]:
        began = time.monotonic()
        response = await caller.send("slow", value)
        return time.monotonic() - began, response

    async with calling(server, over) as caller:
        running = asyncio.create_task(caller.send("slow", 0, timeout_s=30))

        async def look() -> float:
            return await asyncio.to_thread(server.metric, 'paddlewheel_running_requests{model="slow"}')

        await eventually(look, lambda seen: seen == 1, 10, "the first runs")
        answers = await asyncio.gather(*(timed(caller, value) for value in range(1, 7)))
        refused = [(took, response) for took, response in answers if response.status_code == 503]
        late = [(took, response) for took, response in answers if response.status_code == 504]
        assert (len(refused), len(late)) == (3, 3)
        assert max(took for took, _ in refused) < 0.3
        assert all((response.retry_after_s or 0) >= 1 for _, response in refused)
        assert all(TIMEOUT_S - 0.1 < took < TIMEOUT_S + 0.1 for took, _ in late), [took for took, _ in late]
        assert rows_of(await running) == [[0]]


async def test_streams_get_the_same_answers(server: RunningServer) -> None:
    """Six more over one gRPC stream while one runs: three are refused at once and three in time, none is silent."""
    async with calling(server) as caller, grpc.aio.insecure_channel(server.grpc) as channel:
        running = asyncio.create_task(caller.send("slow", 0, timeout_s=30))

        async def look() -> float:
            return await asyncio.to_thread(server.metric, 'paddlewheel_running_requests{model="slow"}')

        await eventually(look, lambda seen: seen == 1, 10, "the first runs")
        stream = stream_on(channel)
        began = time.monotonic()
        for value in range(1, 7):
            await stream.write(message("slow", [value]))
        await stream.done_writing()
        errors = [(time.monotonic() - began, answer.error_message) async for answer in stream]
        assert [("is full" in error, "passed while" in error) for _, error in errors] == [(True, False)] * 3 + [
            (False, True)
        ] * 3
        assert errors[2][0] < 0.3
        assert all(TIMEOUT_S - 0.1 < took < TIMEOUT_S + 0.1 for took, _ in errors[3:]), errors
        assert rows_of(await running) == [[0]]


async def test_a_job_waits_and_is_refused_like_any_request() -> None:
    """A job fails when its time is over, wherever it waits; one for which the store has no room is not acknowledged."""
    model = ModelSettings(
        pipeline="tensor",
        engine="echo",
        batching=Batching(max_batch_size=1, max_queue_size=QUEUE),
        engine_options={"delay_s": 2.0},
    )
    settings = Settings(pool={"default": PoolSettings(workers=1, nice=0)}, models={"slow": model})

    def request(name: str, timeout_s: float) -> InferenceRequest:
        tensor = Tensor("input", "FP32", (1, 1), bytes(4))
        return InferenceRequest(name, "slow", (tensor,), deadline=deadline_in(timeout_s))

    store = MemoryJobStore(QUEUE + 1, 10**6)
    async with Service(settings, Metrics()) as service, JobRunner(service, store, JobSettings()) as jobs:
        await service.load()
        await jobs.submit(request("running", 30))
        await eventually(lambda: jobs.get("running"), lambda job: job.status == "running", 10, "the first runs")
        began = time.monotonic()
        for name in ("one", "two", "three"):
            await jobs.submit(request(name, TIMEOUT_S))
        with pytest.raises(ResourceExhaustedError) as refusal:
            await jobs.submit(request("four", TIMEOUT_S))
        assert refusal.value.retry_after_s is not None
        assert (await jobs.get("two")).status == "queued"
        failed = await eventually(lambda: jobs.get("three"), lambda job: job.status == "failed", 2, "it is late")
        assert TIMEOUT_S - 0.1 < time.monotonic() - began < TIMEOUT_S + 0.2
        assert failed.error is not None
        assert failed.error.kind == "DeadlineExceededError"
        done = await eventually(lambda: jobs.get("running"), lambda job: job.status == "succeeded", 10, "it is done")
        assert (await jobs.response(done)).request_id == "running"
        assert set(await store.counts()) == {"succeeded", "failed"}
