"""SRV-13: worker processes die; nobody is left without an answer, health says so, and they come back."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psutil
import pytest

from conftest import RunningServer, StartServer
from trials.calls import Caller, calling, connected, http_post, over_each_protocol, rows_of
from waiting import eventually, wait_for

RUN_S, LOAD_S = 0.5, 0.7
SETTINGS = f"""
[pool.default]
workers = 2
nice = 0
[models.slow]
pipeline = "tensor"
engine = "echo"
batching = {{ max_batch_size = 1 }}
[models.slow.engine_options]
delay_s = {RUN_S}
load_delay_s = {LOAD_S}
"""


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> RunningServer:
    """Return a server with two workers."""
    return start_server(SETTINGS)


@asynccontextmanager
async def _health(caller: Caller) -> AsyncIterator[list[tuple[float, int]]]:
    """Poll /readyz all the while and give the list of (instant, status)."""
    seen: list[tuple[float, int]] = []

    async def watch() -> None:
        while True:
            response = await caller.http.get("/readyz")
            seen.append((time.monotonic(), response.status_code))
            await asyncio.sleep(0.05)

    watcher = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watcher.cancel()


async def _running(server: RunningServer, count: int) -> None:
    async def look() -> float:
        return await asyncio.to_thread(server.metric, 'paddlewheel_running_requests{model="slow"}')

    await eventually(look, lambda seen: seen == count, 10, f"{count} requests run")


@over_each_protocol
async def test_one_of_two_workers_is_killed(server: RunningServer, over: str) -> None:
    """With six in flight and six more at once, all twelve are answered; the server stays ready, the worker is back."""
    restarts = 'paddlewheel_worker_restarts_total{pool="default",reason="crash"}'
    before = server.metric(restarts)
    async with calling(server, over) as caller, _health(caller) as health:
        first = [asyncio.create_task(caller.send("slow", value)) for value in range(6)]
        await _running(server, 2)
        victim = server.workers()[0]
        victim.kill()
        killed_at = time.monotonic()
        second = [asyncio.create_task(caller.send("slow", value)) for value in range(6, 12)]
        await eventually(_workers(server, "idle", "busy"), lambda up: up < 2, 1, "the loss is seen")
        await eventually(_workers(server, "idle", "busy"), lambda up: up == 2, 10, "the worker is back")
        assert time.monotonic() - killed_at < LOAD_S + 1
        answers = await asyncio.gather(*first, *second)
    assert [rows_of(answer) for answer in answers] == [[[float(value)]] for value in range(12)]
    assert {status for _, status in health} == {200}
    assert victim.pid not in {worker.pid for worker in server.workers()}
    assert server.metric(restarts) == before + 1
    assert server.metric('paddlewheel_queue_depth{model="slow"}') == 0
    assert server.metric('paddlewheel_running_requests{model="slow"}') == 0


@pytest.mark.parametrize("victims", ["both workers", "the fork server"])
async def test_all_workers_are_killed(server: RunningServer, victims: str) -> None:
    """Without workers the server is alive and not ready; it is ready again soon, and what was sent is answered."""
    async with calling(server) as caller, _health(caller) as health:
        tasks = [asyncio.create_task(caller.send("slow", value)) for value in range(4)]
        await _running(server, 2)
        workers = server.workers()
        doomed = workers if victims == "both workers" else [workers[0].parent()]
        for process in doomed:
            process.kill()
        killed_at = time.monotonic()
        await eventually(_ready(caller), lambda status: status == 503, LOAD_S, "the loss is seen")
        assert (await caller.http.get("/livez")).status_code == 200
        refused = await caller.send("slow", 9)
        assert (refused.status_code, refused.retry_after_s) == (503, 1)
        await eventually(_ready(caller), lambda status: status == 200, 10, "ready again")
        assert time.monotonic() - killed_at < LOAD_S + (1 if victims == "both workers" else 4)
        answers = await asyncio.gather(*tasks)
    assert [rows_of(answer) for answer in answers] == [[[float(value)]] for value in range(4)]
    assert [status for _, status in health][-1] == 200


def test_workers_that_never_come_up_again_end_the_server(start_server: StartServer) -> None:
    """When each new worker dies before it is up, the server gives up with status 1, and says why."""
    server = start_server(SETTINGS)

    def none_left() -> bool:
        for worker in server.workers() if server.process.poll() is None else []:
            worker.kill()
        return server.process.poll() is not None

    wait_for(none_left, 30, "the server gives up")
    assert server.process.returncode == 1
    assert "giving up" in server.log.read_text()


async def test_no_worker_outlives_a_server_that_is_killed(start_server: StartServer) -> None:
    """After kill -9 of the server its fork server and workers end, even in the middle of a run."""
    server = start_server(SETTINGS.replace(f"delay_s = {RUN_S}", "delay_s = 600", 1))
    family = psutil.Process(server.process.pid).children(recursive=True)
    assert len(family) >= 3
    async with connected(server.url) as connection:
        await connection.send(http_post("slow", 1))
        await _running(server, 1)
        server.process.kill()
        server.process.wait()
    wait_for(lambda: not any(map(_lives, family)), 5, "all have ended")


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _ready(caller: Caller) -> Callable[[], Awaitable[int]]:
    async def look() -> int:
        return (await caller.http.get("/readyz")).status_code

    return look


def _workers(server: RunningServer, *states: str) -> Callable[[], Awaitable[float]]:
    async def look() -> float:
        text = await asyncio.to_thread(lambda: server.client.get("/metrics").text)
        series = re.findall(r'^paddlewheel_workers\{pool="default",state="(\w+)"\} (\S+)$', text, re.MULTILINE)
        return sum(float(value) for state, value in series if state in states)

    return look
