from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from paddlewheel.config import PoolSettings
from paddlewheel.inference import Answer
from paddlewheel.pipelines import ModelSpec
from paddlewheel.telemetry.metrics import Metrics
from paddlewheel.workers import ProcessPool, Setup, WorkerEndedError
from waiting import eventually
from workers.conftest import ECHO, MakeSpec, request


@asynccontextmanager
async def pool(*specs: ModelSpec, settled: bool = True, **settings: Any) -> AsyncIterator[ProcessPool]:
    """Give a pool of two workers, or as the settings say."""
    metrics, broken = Metrics(), asyncio.Event()
    chosen = PoolSettings.model_validate({"workers": 2, "nice": 0, **settings})
    async with ProcessPool("default", chosen, specs, setup=Setup(), metrics=metrics, broken=broken) as running:
        if settled:
            async with asyncio.timeout(30):
                await running.settled()
        yield running


async def run_one(running: ProcessPool, value: float) -> list[float]:
    """Run one request in any idle worker."""
    worker = running.take_idle(ECHO)
    try:
        (outcome,) = (await worker.run(ECHO, [request(value)], 1)).outcomes
    finally:
        running.release(worker)
    assert isinstance(outcome, Answer)
    row: list[float] = outcome.outputs[0].numpy()[0].tolist()
    return row


async def until(condition: Callable[[], object], what: str, timeout_s: float = 10) -> None:
    """Wait until `condition` is true of a pool in this process."""

    async def look() -> object:
        return condition()

    await eventually(look, bool, timeout_s, what)


def series(running: ProcessPool, name: str) -> float:
    """Return the value of a series of the pool's metrics."""
    for line in running._metrics.render().decode().splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    return 0.0


def restarts(running: ProcessPool, reason: str) -> float:
    """Return how many workers were replaced for `reason`."""
    return series(running, f'paddlewheel_worker_restarts_total{{pool="default",reason="{reason}"}}')


async def test_every_worker_has_every_model(spec: MakeSpec) -> None:
    """Two models, two workers: each can be had from each, and both count as idle."""
    async with pool(spec(), spec("other")) as running:
        assert (running.workers, running.busy) == (2, 0)
        first, second = running.take_idle(ECHO), running.take_idle("other/1/0")
        assert first is not second
        assert not running.has_idle(ECHO)
        assert running.busy == 2
        with pytest.raises(LookupError):
            running.take_idle(ECHO)
        running.release(first)
        assert running.has_idle(ECHO)
        assert running.has_idle("other/1/0")
        assert running.models[ECHO].description == {"network": "fp32 on cpu"}


async def test_a_model_that_cannot_be_loaded_is_left_out(spec: MakeSpec) -> None:
    """It is marked with the reason; the other model is served by every worker."""
    async with pool(spec("bad", outputs=[]), spec()) as running:
        bad = running.models["bad/1/0"]
        assert bad.status == "failed"
        assert bad.error is not None
        assert "0 outputs" in bad.error.detail
        assert running.serves(ECHO)
        assert not running.serves("bad/1/0")
        assert await run_one(running, 1) == [1]
        assert running.workers == 2


@pytest.mark.parametrize("workers", [1, 6])
async def test_models_that_end_their_worker_at_load_are_left_out(spec: MakeSpec, workers: int) -> None:
    """Each gets two tries in all, however many workers there are; then they come up without it, and none is broken."""
    bad = [spec(f"bad-{number}", exit_at_load=True) for number in range(3)]
    async with pool(bad[0], spec(), *bad[1:], workers=workers) as running:
        assert running.workers == workers
        assert running.serves(ECHO)
        for each in bad:
            state = running.models[each.key]
            assert state.status == "failed"
            assert state.error is not None
            assert "ends the worker process" in state.error.detail
        assert not running._broken.is_set()


async def test_a_worker_that_is_killed_is_replaced(spec: MakeSpec) -> None:
    """It is out at once, and another is soon there; what it ran raises, and giving it back is harmless."""
    async with pool(spec(delay_s=30)) as running:
        worker = running.take_idle(ECHO)
        call = asyncio.create_task(worker.run(ECHO, [request(1)], 1))
        psutil.Process(worker.pid).kill()
        with pytest.raises(WorkerEndedError):
            await call
        assert running.workers == 1
        running.release(worker)
        await until(lambda: running.workers == 2, "another is up", 5)
        assert running.busy == 0
        assert restarts(running, "crash") == 1


async def test_a_worker_that_dies_idle_is_replaced(spec: MakeSpec) -> None:
    """Nobody has to run into it."""
    async with pool(spec()) as running:
        gone = next(iter(running._places))
        psutil.Process(gone.pid).kill()
        await until(lambda: gone.ended.is_set() and running.workers == 2, "another is up", 5)
        assert await run_one(running, 1) == [1]


async def test_recycling_keeps_capacity(spec: MakeSpec) -> None:
    """A worker over its ceiling serves until its successor is ready: there is never less than one idle worker."""
    async with pool(spec(load_delay_s=0.3), workers=1, memory_limit_mb=1) as running:
        first = next(iter(running._places))
        for value in range(20):
            assert await run_one(running, value) == [value]
        await until(lambda: restarts(running, "memory") >= 1, "it is due")
        while running.serves(ECHO) and not first.ended.is_set():
            assert running.has_idle(ECHO)
            assert await run_one(running, 1) == [1]
            await asyncio.sleep(0)
        assert running.workers >= 1
        assert restarts(running, "crash") == 0


async def test_recycling_goes_one_by_one(spec: MakeSpec) -> None:
    """However many are due, only one has two processes at a time: memory does not double."""
    async with pool(spec(load_delay_s=0.2), workers=3, memory_limit_mb=1) as running:
        first = set(running._places)
        for value in range(12):
            await asyncio.gather(*(run_one(running, value) for _ in range(3)))
        most = 0

        def replaced() -> bool:
            nonlocal most
            family = psutil.Process().children(recursive=True)
            pids = {worker.pid for worker in first}
            most = max(most, running.workers, sum(each.pid in pids for each in family))
            return all(worker.ended.is_set() for worker in first)

        await until(replaced, "all three are replaced")
        assert most <= 4


async def test_a_worker_that_dies_while_it_is_being_replaced(spec: MakeSpec) -> None:
    """Its successor takes its place as if nothing had been, and the place is kept on."""
    async with pool(spec(load_delay_s=0.5), workers=1, memory_limit_mb=1) as running:
        worker = running.take_idle(ECHO)
        await worker.run(ECHO, [request(1)], 1)
        running.release(worker)
        await until(lambda: restarts(running, "memory") == 1, "it is due")
        psutil.Process(worker.pid).kill()
        await until(worker.ended.is_set, "it is dead")
        assert not running.serves(ECHO)
        await until(lambda: running.workers == 1, "the successor is up")
        assert await run_one(running, 2) == [2]
        successor = next(each for each in running._places)
        psutil.Process(successor.pid).kill()
        await until(lambda: successor.ended.is_set() and running.workers == 1, "it is replaced as well")


async def test_a_model_that_does_not_load_again_is_waited_for(spec: MakeSpec) -> None:
    """A model that was served is not given up because a new worker cannot load it: it tries again, and one day can."""
    async with pool(spec(), workers=2) as running:
        state = running.models[ECHO]
        good, state.spec = state.spec, spec(outputs=[])
        victim, survivor = running._places
        psutil.Process(victim.pid).kill()
        await until(lambda: running._failed_starts >= 2, "it cannot come up")
        assert state.status == "ready"
        assert running.serves(ECHO)
        assert list(running._places) == [survivor]
        state.spec = good
        await until(lambda: running.workers == 2, "it comes up")
        assert running._failed_starts == 0
        assert not running._broken.is_set()


async def test_a_pool_whose_workers_never_come_up_again_is_broken(spec: MakeSpec) -> None:
    """Only once no worker is left, and only after several tries."""
    async with pool(spec(), workers=2) as running:
        running.models[ECHO].spec = spec(exit_at_load=True)
        victims = [psutil.Process(worker.pid) for worker in running._places]
        victims[0].kill()
        await until(lambda: running._failed_starts >= 5, "it does not come up")
        assert not running._broken.is_set(), "the other one serves"
        victims[1].kill()
        async with asyncio.timeout(20):
            await running._broken.wait()


async def test_a_pool_stops_quickly_whatever_it_does(spec: MakeSpec) -> None:
    """Neither a start, nor a load, nor a run holds up the stop, and no process is left."""
    before = set(psutil.Process().children(recursive=True))
    async with asyncio.timeout(5):
        async with pool(spec(load_delay_s=60), settled=False):
            await asyncio.sleep(0)
        async with pool(spec("slow", load_delay_s=60), settled=False):
            await until(lambda: len(psutil.Process().children(recursive=True)) > len(before), "one has started")
    async with pool(spec(delay_s=60)) as running:
        worker = running.take_idle(ECHO)
        call = asyncio.create_task(worker.run(ECHO, [request(1)], 1))
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 5
    with pytest.raises(WorkerEndedError):
        await call

    def alive() -> set[psutil.Process]:
        now = psutil.Process().children(recursive=True)
        return {each for each in now if each.status() != psutil.STATUS_ZOMBIE}

    await until(lambda: alive() <= before, "none is left")


async def test_the_gauge_of_workers(spec: MakeSpec) -> None:
    """Idle, busy and starting add up to the size of the pool."""
    async with pool(spec(load_delay_s=0.3)) as running:

        def counts() -> list[float]:
            states = ("idle", "busy", "starting")
            return [series(running, f'paddlewheel_workers{{pool="default",state="{state}"}}') for state in states]

        assert counts() == [2, 0, 0]
        worker = running.take_idle(ECHO)
        assert counts() == [1, 1, 0]
        psutil.Process(worker.pid).kill()
        await until(lambda: counts() == [1, 0, 1], "the loss is counted")
        await until(lambda: counts() == [2, 0, 0], "the new one is counted")
