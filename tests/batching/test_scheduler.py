from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddlewheel.batching import QueuedRequest, Scheduler, ServedVersion
from paddlewheel.config import Batching, PoolSettings
from paddlewheel.errors import InternalError, InvalidArgumentError, ResourceExhaustedError, WorkerCrashedError
from paddlewheel.inference import InferenceRequest, Tensor
from paddlewheel.pipelines import ModelSpec
from paddlewheel.telemetry.metrics import Metrics
from paddlewheel.workers import ProcessPool, Setup, available_cores, process, thread_counts
from waiting import eventually

pytestmark = pytest.mark.usefixtures("forked")
ENDS = 14.0


class Scheduled:
    """A scheduler over a real pool of echoes, and what the tests do with it."""

    def __init__(self, scheduler: Scheduler, metrics: Metrics, models: Mapping[str, ServedVersion]) -> None:
        self.scheduler = scheduler
        self.metrics = metrics
        self.models = models

    def submit(
        self, *values: float, model: str = "echo", priority: int = 1, deadline: float | None = None, **parameters: Any
    ) -> QueuedRequest:
        """Queue a request of one row."""
        tensor = Tensor.from_numpy("input", np.array([values], np.float32))
        request = InferenceRequest(f"{values}", model, (tensor,), parameters, priority=priority, deadline=deadline)
        (queued,) = self.scheduler.submit(self.models[model], [request])
        return queued

    async def until_running(self, count: int) -> None:
        """Return once `count` requests run."""

        async def look() -> int:
            return sum(model.running for model in self.models.values())

        await eventually(look, lambda running: running == count, 10, f"{count} run")

    def batch_sizes(self) -> tuple[float, float]:
        """Return how many requests and how many batches went to workers."""
        text = self.metrics.render().decode()
        found = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line[:1] != "#"}
        names = (
            'paddlewheel_batch_size_sum{model="echo",version="1"}',
            'paddlewheel_batch_size_count{model="echo",version="1"}',
        )
        return found.get(names[0], 0), found.get(names[1], 0)


@asynccontextmanager
async def scheduled(
    options: Mapping[str, Any] | None = None, *, names: tuple[str, ...] = ("echo",), workers: int = 1, **batching: Any
) -> AsyncIterator[Scheduled]:
    """Give a scheduler over echoes that are ready."""
    settings, metrics = PoolSettings(workers=workers, nice=0), Metrics()
    threads = thread_counts(settings, available_cores())
    most = batching.get("max_batch_size", 8)
    specs = [
        ModelSpec(name, "1", "tensor", "echo", threads=threads, max_batch_size=most, engine_options=options or {})
        for name in names
    ]
    pool = ProcessPool("default", settings, specs, setup=Setup(), metrics=metrics, broken=asyncio.Event())
    scheduler = Scheduler(pool, metrics)
    models = {spec.name: ServedVersion(pool.models[spec.key], Batching.model_validate(batching)) for spec in specs}
    async with pool, scheduler:
        await pool.settled()
        for model in models.values():
            scheduler.add(model)
        yield Scheduled(scheduler, metrics, models)


async def value_of(queued: QueuedRequest) -> list[float]:
    """Return the row that answers a request."""
    async with asyncio.timeout(20):
        answer = await queued.answer
    row: list[float] = answer.outputs[0].numpy()[0].tolist()
    return row


async def error_of(queued: QueuedRequest) -> BaseException | None:
    """Return the error that a request ended with."""
    await asyncio.wait([queued.answer], timeout=20)
    return queued.answer.exception()


async def test_a_burst_is_shared_out_over_idle_workers() -> None:
    """Six at once, two workers, no delay: both have some of them at once, neither has all."""
    async with scheduled({"delay_s": 0.2}, workers=2) as running:
        answers = [running.submit(value) for value in range(6)]
        await running.until_running(3 + 2)
        assert running.scheduler.pool.busy == 2
        assert [await value_of(each) for each in answers] == [[value] for value in range(6)]


async def test_what_waits_while_all_run_goes_as_one_batch() -> None:
    """While the worker is busy seven gather; then they go together, up to the largest batch."""
    async with scheduled({"delay_s": 0.2}, max_batch_size=5) as running:
        first = running.submit(0)
        await running.until_running(1)
        answers = [running.submit(value) for value in range(1, 8)]
        await asyncio.gather(*map(value_of, [first, *answers]))
        assert running.batch_sizes() == (8, 3)


async def test_a_queue_delay_gathers_a_batch() -> None:
    """With a delay an idle worker waits for company, at most that long; a batch of the preferred size goes at once."""
    async with scheduled(max_queue_delay_microseconds=300_000, preferred_batch_size=3) as running:
        began = time.monotonic()
        await asyncio.gather(*(value_of(running.submit(value)) for value in range(3)))
        assert time.monotonic() - began < 0.25
        assert running.batch_sizes() == (3, 1)
        began = time.monotonic()
        await asyncio.gather(*(value_of(running.submit(value)) for value in range(2)))
        assert 0.3 <= time.monotonic() - began < 0.9
        assert running.batch_sizes() == (5, 2)


async def test_other_shapes_do_not_share() -> None:
    """Requests of two shapes run in two batches, each answered in its own shape."""
    async with scheduled(max_queue_delay_microseconds=50_000) as running:
        answers = [running.submit(1), running.submit(2, 3), running.submit(4)]
        assert [await value_of(each) for each in answers] == [[1], [2, 3], [4]]
        assert running.batch_sizes() == (3, 2)


async def test_priority_then_age_over_all_models(tmp_path: Path) -> None:
    """Of several models' queues the highest priority goes first, then who has waited longest."""
    log = tmp_path / "events"
    options = {"delay_s": 0.05, "event_log": str(log)}
    async with scheduled(options, names=("echo", "other"), max_batch_size=1) as running:
        first = running.submit(0)
        await running.until_running(1)
        waiting = [
            running.submit(1, priority=2),
            running.submit(2, model="other", priority=2),
            running.submit(3, model="other", priority=1),
            running.submit(4, priority=3),
            running.submit(5, priority=1),
        ]
        await asyncio.gather(*map(value_of, [first, *waiting]))
    starts = [line.split()[1] for line in log.read_text().splitlines() if line.startswith("start")]
    assert starts == ["0", "3", "5", "1", "2", "4"]


async def test_mates_of_a_crash_survive() -> None:
    """A batch whose worker ends is run again one by one: the guilty one is told so, the innocent get their answers."""
    async with scheduled({"exit_on": ENDS}, max_queue_delay_microseconds=50_000) as running:
        answers = [running.submit(value) for value in (1, ENDS, 2, 3)]
        assert [await value_of(answers[index]) for index in (0, 2, 3)] == [[1], [2], [3]]
        assert isinstance(await error_of(answers[1]), WorkerCrashedError)
        assert running.batch_sizes() == (8, 5), "one batch of four, then four alone"
        assert await value_of(running.submit(4)) == [4]


async def test_one_alone_is_tried_again_after_a_crash_that_was_not_its_fault(tmp_path: Path) -> None:
    """A worker that is killed under a request costs the caller time, not the answer; the second time it is told."""
    log = tmp_path / "events"

    async def started() -> int:
        return log.read_text().count("start") if log.exists() else 0

    async with scheduled({"delay_s": 0.3, "event_log": str(log)}) as running:
        answer = running.submit(1)
        await eventually(started, lambda count: count == 1, 10, "it runs")
        next(iter(running.scheduler.pool._places)).kill("crash")
        assert await value_of(answer) == [1]
        unlucky = running.submit(2)
        for runs in (3, 4):
            await eventually(started, lambda count, runs=runs: count == runs, 10, "it runs")
            next(iter(running.scheduler.pool._places)).kill("crash")
        assert isinstance(await error_of(unlucky), WorkerCrashedError)


async def test_a_batch_too_large_for_the_arena_runs_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that fit alone but not together are all answered; one that does not fit alone is refused, with 413."""
    monkeypatch.setattr(process, "ARENA_BYTES", 1 << 20)
    async with scheduled(max_queue_delay_microseconds=50_000) as running:
        wide = [running.submit(*([float(value)] * 150_000)) for value in range(3)]
        assert [(await value_of(each))[0] for each in wide] == [0, 1, 2]
        error = await error_of(running.submit(*([1.0] * 300_000)))
        assert isinstance(error, InvalidArgumentError)
        assert error.http_status == 413


async def test_a_fault_of_ours_leaves_nobody_waiting() -> None:
    """A request that cannot be sent at all fails at once and alone, and the scheduler goes on."""
    async with scheduled(max_queue_delay_microseconds=50_000) as running:
        bad, good = running.submit(1, thing=object()), running.submit(2)
        assert isinstance(await error_of(bad), InternalError)
        assert await value_of(good) == [2]
        assert await value_of(running.submit(3)) == [3]


async def test_all_parts_or_none_are_queued() -> None:
    """What belongs together gets its places together; where they are too few, none is taken."""
    async with scheduled({"delay_s": 0.3}, max_batch_size=1, max_queue_size=3) as running:
        first = running.submit(0)
        await running.until_running(1)
        version, tensor = running.models["echo"], Tensor.from_numpy("input", np.zeros((1, 1), np.float32))
        parts = [InferenceRequest(f"{part}", "echo", (tensor,)) for part in range(4)]
        with pytest.raises(ResourceExhaustedError, match=r"of 3 places has no room .* 4 parts \(0 waiting\)"):
            running.scheduler.submit(version, parts)
        assert len(version.queue) == 0
        queued = running.scheduler.submit(version, parts[1:])
        await asyncio.gather(*map(value_of, [first, *queued]))


async def test_a_version_goes_when_it_has_answered() -> None:
    """Removing it waits for what it has, waiting and running."""
    async with scheduled({"delay_s": 0.2}, max_batch_size=1) as running:
        answers = [running.submit(value) for value in range(2)]
        await running.until_running(1)
        async with asyncio.timeout(10):
            await running.scheduler.remove(running.models["echo"])
        assert all(each.answer.done() for each in answers)


async def test_only_one_that_is_alone_has_every_core() -> None:
    """A lone request is run with all cores, those of a busy pool with a worker's share."""
    share, *rest = thread_counts(PoolSettings(workers=2), available_cores())
    every = rest[0] if rest else share
    async with scheduled({"return_threads": True, "delay_s": 0.1}, workers=2, max_batch_size=1) as running:
        assert await value_of(running.submit(0)) == [every]
        crowd = [running.submit(0) for _ in range(4)]
        threads = [(await value_of(each))[0] for each in crowd]
        assert threads[1:3] == [share, share], "while another runs, or waits"
        assert await value_of(running.submit(0)) == [every]


async def test_who_leaves_frees_a_place_and_is_not_run(tmp_path: Path) -> None:
    """The queue takes another at once; neither the late nor the abandoned reach a worker."""
    log = tmp_path / "events"
    options = {"delay_s": 0.3, "event_log": str(log)}
    async with scheduled(options, max_batch_size=1, max_queue_size=2) as running:
        first = running.submit(0)
        await running.until_running(1)
        gone, late = running.submit(1), running.submit(2, deadline=time.monotonic() + 0.1)
        with pytest.raises(ResourceExhaustedError):
            running.submit(3)
        gone.leave()
        last = running.submit(4)
        assert [await value_of(each) for each in (first, last)] == [[0], [4]]
        late.leave()
    assert log.read_text().split() == ["start", "0", "finish", "0", "start", "4", "finish", "4"]


async def test_the_time_to_retry_follows_the_pace() -> None:
    """It is half of the time that what waits will take, in whole seconds, from one to sixty."""
    async with scheduled(workers=2, max_queue_size=1000) as running:
        model = running.models["echo"]
        assert running.scheduler.retry_after_s(model) == 1
        for _ in range(20):
            model.pace.record(2.0, 1)
        for waiting, expected in ((0, 1), (9, 4), (19, 9), (400, 60)):
            model.running = waiting
            assert running.scheduler.retry_after_s(model) == expected
        model.running = 0


async def test_a_stop_is_quick_while_a_batch_runs() -> None:
    """What runs is dropped with its worker."""
    async with scheduled({"delay_s": 60}) as running:
        running.submit(1)
        await running.until_running(1)
        began = time.monotonic()
    assert time.monotonic() - began < 3
