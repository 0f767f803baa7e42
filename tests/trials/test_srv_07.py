"""SRV-07: what nobody waits for any more is not begun, and the next in the queue starts at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from conftest import RunningServer, StartServer
from trials.calls import EventLog, calling, connected, http_post
from waiting import eventually

SLOW_S = 2.0
A, B, C1, C2, D, E, F, G = 1.0, 2.0, 31.0, 32.0, 4.0, 5.0, 6.0, 7.0


@pytest.fixture
def log(tmp_path_factory: pytest.TempPathFactory) -> EventLog:
    """Return the event log of the model."""
    return EventLog(tmp_path_factory.mktemp("srv-07") / "events")


@pytest.fixture
def server(start_server: StartServer, log: EventLog) -> RunningServer:
    """Return a server with one worker and a model that takes two seconds."""
    return start_server(f"""
[pool.default]
workers = 1
nice = 0
[models.slow]
pipeline = "tensor"
engine = "echo"
batching = {{ max_batch_size = 1 }}
[models.slow.engine_options]
delay_s = {SLOW_S}
event_log = "{log.path}"
""")


async def _waiting(server: RunningServer, count: int) -> None:
    """Return once `count` requests wait in the queue."""

    async def look() -> float:
        return await asyncio.to_thread(server.metric, 'paddlewheel_queue_depth{model="slow"}')

    await eventually(look, lambda seen: seen == count, SLOW_S / 2, f"{count} requests wait")


async def test_the_abandoned_and_the_late_never_start(server: RunningServer, log: EventLog) -> None:
    """While A runs, B hangs up, C pipelines two requests and hangs up, D cancels over gRPC, F's and G's 200 ms pass.

    None of them starts, and E follows A. F called over HTTP, G over gRPC.
    """
    async with calling(server) as caller:
        a = asyncio.create_task(caller.send("slow", A))
        await eventually(_events(log), lambda events: events == ["start 1"], 10, "A runs")

        async with connected(server.url) as b, connected(server.url) as c:
            await b.send(http_post("slow", B))
            await c.send(http_post("slow", C1))
            await _waiting(server, 2)
            # Behind the first and not with it: that is when a server may stop reading the connection.
            await c.send(http_post("slow", C2))
            began = time.monotonic()
            f = await caller.send("slow", F, timeout_s=0.2)
            assert f.status_code == 504
            assert 0.15 < time.monotonic() - began < 0.4
            async with calling(server, "grpc") as grpc_caller:
                d = asyncio.create_task(grpc_caller.send("slow", D))
                await _waiting(server, 3)
                d.cancel()
                await _waiting(server, 2)
                began = time.monotonic()
                g = await grpc_caller.send("slow", G, timeout_s=0.2)
                assert g.status_code == 504
                assert 0.15 < time.monotonic() - began < 0.4
        await _waiting(server, 0)

        e = asyncio.create_task(caller.send("slow", E))
        assert (await a).status_code == 200
        a_done = time.monotonic()
        assert (await e).status_code == 200
        assert time.monotonic() - a_done == pytest.approx(SLOW_S, abs=0.5)
    assert log.events() == ["start 1", "finish 1", "start 5", "finish 5"]
    # At its deadline a gRPC caller leaves; who is first at the server, its clock or the news of that, is chance.
    assert server.metric(_requests("OK")) == 2
    assert server.metric(_requests("CANCELLED")) + server.metric(_requests("DEADLINE_EXCEEDED")) == 5


async def test_one_who_hangs_up_while_it_runs(server: RunningServer, log: EventLog) -> None:
    """The caller of a running request leaves: it is counted at once, its answer goes nowhere, the next is served."""
    async with connected(server.url) as connection:
        await connection.send(http_post("slow", A))
        await eventually(_events(log), lambda events: events == ["start 1"], 10, "A runs")

    async def look() -> float:
        return await asyncio.to_thread(server.metric, _requests("CANCELLED"))

    await eventually(look, lambda seen: seen == 1, SLOW_S / 2, "A is counted")
    async with calling(server) as caller:
        assert (await caller.send("slow", E)).status_code == 200
    assert log.events()[-2:] == ["start 5", "finish 5"]
    assert server.metric('paddlewheel_running_requests{model="slow"}') == 0


def _requests(outcome: str) -> str:
    return f'paddlewheel_requests_total{{model="slow",outcome="{outcome}"}}'


def _events(log: EventLog) -> Callable[[], Awaitable[list[str]]]:
    async def look() -> list[str]:
        return log.events()

    return look
