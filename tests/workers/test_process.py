from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from paddlewheel.engines.echo import EXIT_STATUS
from paddlewheel.errors import InternalError, ModelLoadError, PayloadTooLargeError
from paddlewheel.inference import Answer, InferenceRequest, Tensor
from paddlewheel.pipelines import ModelSpec
from paddlewheel.workers import Setup, WorkerEndedError, WorkerProcess
from paddlewheel.workers.process import ARENA_BYTES
from waiting import eventually
from workers.conftest import ECHO, MakeSpec, mapped_arenas, open_descriptors, request

GOOD, RAISES, ENDS, HANGS = 1.0, 13.0, 14.0, 15.0
MISCHIEF = {"fail_on": RAISES, "exit_on": ENDS, "hang_on": HANGS}


@asynccontextmanager
async def worker(
    *specs: ModelSpec, hang_timeout_s: float = 30, setup: Setup | None = None
) -> AsyncIterator[WorkerProcess]:
    """Give a worker with models loaded."""
    ended: list[WorkerProcess] = []
    process = WorkerProcess(setup or Setup(), hang_timeout_s=hang_timeout_s, on_end=ended.append)
    await process.start()
    try:
        for spec in specs:
            await process.load(spec, 30)
        yield process
    finally:
        await process.stop()
    assert ended == [process], "its owner hears of the end, once"


def values(outcome: object) -> list[float]:
    """Return the first row of an answer."""
    assert isinstance(outcome, Answer), outcome
    row: list[float] = outcome.outputs[0].numpy()[0].tolist()
    return row


async def test_a_batch_comes_back_in_order(spec: MakeSpec) -> None:
    """Three requests of one batch get their own values; the worker says what it loaded and how large it is."""
    async with worker(spec()) as process:
        outcomes = (await process.run(ECHO, [request(1, 2), request(3, 4), request(5, 6)], 1)).outcomes
        assert [values(outcome) for outcome in outcomes] == [[1, 2], [3, 4], [5, 6]]
        assert process.models == {ECHO}
        assert process.rss_bytes == pytest.approx(psutil.Process(process.pid).memory_info().rss, rel=0.2)


async def test_a_batch_of_many_megabytes(spec: MakeSpec) -> None:
    """Large tensors come back whole, batch after batch, and the answer of the first is not changed by the second."""
    async with worker(spec()) as process:
        arrays = [np.full((1, 5_000_000), value, np.float32) for value in (1, 2)]
        outcomes = []
        for array in arrays:
            call = InferenceRequest("id", "echo", (Tensor.from_numpy("input", array),))
            outcomes += (await process.run(ECHO, [call], 1)).outcomes
        for outcome, array in zip(outcomes, arrays, strict=True):
            assert isinstance(outcome, Answer)
            np.testing.assert_array_equal(outcome.outputs[0].numpy(), array)


async def test_more_than_the_arena_is_refused_and_the_worker_goes_on(spec: MakeSpec) -> None:
    """A batch that does not fit raises before it is sent; the next is run."""
    # Never written to, so it takes no memory.
    row = Tensor.from_numpy("input", np.zeros((1, ARENA_BYTES // 4 + 4096), np.float32))
    batch = [request(GOOD), InferenceRequest("id", "echo", (row,))]
    async with worker(spec()) as process:
        with pytest.raises(PayloadTooLargeError):
            await process.run(ECHO, batch, 1)
        assert values((await process.run(ECHO, [request(GOOD)], 1)).outcomes[0]) == [GOOD]


async def test_a_model_that_cannot_be_loaded_has_its_own_error(spec: MakeSpec) -> None:
    """The engine's reason arrives, as the class that it is, and the worker lives on with its other models."""
    async with worker(spec()) as process:
        with pytest.raises(ModelLoadError, match="0 outputs for 1 ports"):
            await process.load(spec("bad", outputs=[]), 30)
        with pytest.raises(ModelLoadError, match="no engine 'none'"):
            await process.load(replace(spec("worse"), engine="none"), 30)
        assert process.models == {ECHO}
        assert values((await process.run(ECHO, [request(GOOD)], 1)).outcomes[0]) == [GOOD]


async def test_one_that_raises_fails_alone(spec: MakeSpec) -> None:
    """The batch is run again one by one: the guilty one has an error without any inside, the others their answers."""
    async with worker(spec(**MISCHIEF)) as process:
        good, bad, other = (await process.run(ECHO, [request(1), request(RAISES), request(2)], 1)).outcomes
        assert (values(good), values(other)) == ([1], [2])
        assert isinstance(bad, InternalError)
        assert "told to fail" not in bad.detail


async def test_a_process_that_ends(spec: MakeSpec) -> None:
    """The call raises at once, saying how it ended; a later call raises too."""
    async with worker(spec(**MISCHIEF)) as process:
        with pytest.raises(WorkerEndedError, match=f"exited with status {EXIT_STATUS}"):
            await process.run(ECHO, [request(ENDS)], 1)
        assert process.ended.is_set()
        assert process.end_reason == "crash"
        with pytest.raises(WorkerEndedError, match="has ended"):
            await process.run(ECHO, [request(GOOD)], 1)


async def test_a_process_that_is_killed(spec: MakeSpec) -> None:
    """The signal is named."""
    async with worker(spec(delay_s=30)) as process:
        call = asyncio.create_task(process.run(ECHO, [request(GOOD)], 1))
        psutil.Process(process.pid).kill()
        with pytest.raises(WorkerEndedError, match="SIGKILL"):
            await call


async def test_a_process_that_hangs_is_killed(spec: MakeSpec) -> None:
    """After the time-out it is killed, said to have hung, and gone."""
    async with worker(spec(**MISCHIEF), hang_timeout_s=0.3) as process:
        began = time.monotonic()
        with pytest.raises(WorkerEndedError, match="did not report within"):
            await process.run(ECHO, [request(HANGS)], 1)
        assert 0.3 <= time.monotonic() - began < 3
        assert process.end_reason == "hang"
        assert not psutil.pid_exists(process.pid) or psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE


async def test_a_model_that_ends_the_process_at_load(spec: MakeSpec) -> None:
    """Loading raises like running does."""
    async with worker(spec()) as process:
        with pytest.raises(WorkerEndedError, match=f"exited with status {EXIT_STATUS}"):
            await process.load(spec("bad", exit_at_load=True), 30)


async def test_a_call_that_is_given_up_ends_the_process(spec: MakeSpec, tmp_path: Path) -> None:
    """A cancelled batch would report to nobody: its worker is killed, at once, whatever it does."""
    log = tmp_path / "events"

    async def begun() -> bool:
        return log.exists()

    async with worker(spec(delay_s=60, event_log=str(log))) as process:
        call = asyncio.create_task(process.run(ECHO, [request(GOOD)], 1))
        await eventually(begun, bool, 5, "it runs")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(5):
            await process.ended.wait()


async def test_an_abandoned_item_is_not_run(spec: MakeSpec) -> None:
    """An item whose caller leaves before the batch reaches it is dropped; its mates are answered."""
    async with worker(spec(delay_s=0.3, fail_on=RAISES)) as process:
        # The first run fails as a whole; by the time of the second, one by one, the last item is abandoned.
        call = asyncio.create_task(process.run(ECHO, [request(RAISES), request(1), request(2)], 1))
        await asyncio.sleep(0)
        process.abandon(2)
        bad, good, gone = (await call).outcomes
    assert isinstance(bad, InternalError)
    assert values(good) == [1]
    assert type(gone).__name__ == "CancelledByCallerError"


async def test_a_start_that_is_given_up_leaves_nothing(spec: MakeSpec) -> None:
    """Cancelled at any moment of its start, a worker leaves neither a process nor a descriptor."""
    spec()
    before, children = open_descriptors(), set(psutil.Process().children(recursive=True))
    for turns in range(6):
        process = WorkerProcess(Setup(), hang_timeout_s=30, on_end=lambda _: None)
        start = asyncio.create_task(process.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    async def left() -> tuple[int, set[psutil.Process]]:
        gc.collect()
        now = psutil.Process().children(recursive=True)
        return open_descriptors(), {each for each in now if each.status() != psutil.STATUS_ZOMBIE}

    await eventually(left, lambda seen: seen[0] <= before and seen[1] <= children, 10, "nothing is left")


@pytest.mark.parametrize("last", [GOOD, ENDS])
async def test_what_an_ended_worker_had_is_given_back(spec: MakeSpec, last: float) -> None:
    """Descriptors are closed and arenas unmapped with their worker, whether it was stopped or crashed."""

    async def use_one() -> None:
        async with worker(spec(**MISCHIEF)) as process:
            with suppress(WorkerEndedError):
                await process.run(ECHO, [request(last)], 1)

    await use_one()
    gc.collect()
    before = open_descriptors(), mapped_arenas()
    for _ in range(3):
        await use_one()
    gc.collect()
    assert (open_descriptors(), mapped_arenas()) == before


async def test_the_fork_server_is_killed(spec: MakeSpec) -> None:
    """Its workers end with it, which they report; the next start makes a new one."""
    async with worker(spec()) as process:
        psutil.Process(process.pid).parent().kill()
        async with asyncio.timeout(5):
            await process.ended.wait()
    async with worker(spec()) as process:
        assert values((await process.run(ECHO, [request(GOOD)], 1)).outcomes[0]) == [GOOD]


async def test_the_niceness_of_a_worker(spec: MakeSpec) -> None:
    """A worker is as nice as its pool says."""
    async with worker(spec(), setup=Setup(nice=3)) as process:
        assert psutil.Process(process.pid).nice() == psutil.Process().nice() + 3


_NESTED = """
import psutil
from paddlewheel.workers import fork_server

def count():
    return sum("forkserver" in " ".join(child.cmdline()) for child in psutil.Process().children())

with fork_server(["echo"]):
    with fork_server(["echo"]):
        pass
    assert count() == 1, "who did not start it leaves it"
assert count() == 0
with fork_server(["echo"]):
    assert count() == 1
"""


def test_who_started_the_fork_server_ends_it() -> None:
    """One that finds it running leaves it running; after the end of one the next starts afresh."""
    done = subprocess.run([sys.executable, "-c", _NESTED], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
