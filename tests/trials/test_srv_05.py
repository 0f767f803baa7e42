"""SRV-05: the batch limit counts rows, the order is first in first out, and an empty request reaches no model."""

from __future__ import annotations

import asyncio

import pytest

from conftest import RunningServer, StartServer
from trials.calls import Caller, EventLog, calling, over_each_protocol, rows_of
from waiting import eventually

MOST_ROWS = 4


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> EventLog:
    """Return the event log of the model."""
    return EventLog(tmp_path_factory.mktemp("srv-05") / "events")


@pytest.fixture(scope="module")
def server(start_server: StartServer, log: EventLog) -> RunningServer:
    """Return a server with one worker, whose model takes four rows and half a second a batch."""
    return start_server(f"""
[pool.default]
workers = 1
nice = 0
[models.rows]
pipeline = "tensor"
engine = "echo"
batching = {{ max_batch_size = {MOST_ROWS} }}
[models.rows.engine_options]
delay_s = 0.5
event_log = "{log.path}"
""")


async def _hold(caller: Caller, server: RunningServer, value: float) -> asyncio.Task[object]:
    """Occupy the worker with a request of `value`, so that what is sent next waits."""
    task: asyncio.Task[object] = asyncio.create_task(caller.send("rows", value))
    await _until(server, "paddlewheel_running_requests", 1)
    return task


async def _until(server: RunningServer, gauge: str, value: int) -> None:
    async def look() -> float:
        return await asyncio.to_thread(server.metric, f'{gauge}{{model="rows"}}')

    await eventually(look, lambda seen: seen == value, 10, f"{gauge} is {value}")


@over_each_protocol
async def test_a_batch_never_has_more_rows_than_the_limit(server: RunningServer, log: EventLog, over: str) -> None:
    """Three requests of three rows and three of one row: every answer is whole, no batch has more than four rows."""
    requests = [[[float(10 * index + row)] for row in range(3 if index % 2 else 1)] for index in range(6)]
    ran_before = len(log.batches())
    async with calling(server, over) as caller:
        first = await _hold(caller, server, 99)
        responses = await asyncio.gather(*(caller.infer("rows", *rows) for rows in requests), first)
    assert [rows_of(response) for response in responses[:-1]] == requests
    sizes = [len(batch) for batch in log.batches()[ran_before:]]
    assert max(sizes) == MOST_ROWS
    assert sum(sizes) == 1 + sum(map(len, requests))


@over_each_protocol
async def test_more_rows_than_the_limit_are_split(server: RunningServer, log: EventLog, over: str) -> None:
    """A request of six rows goes as four and two, and comes back whole."""
    ran_before = len(log.batches())
    rows = [[float(row)] for row in range(MOST_ROWS + 2)]
    async with calling(server, over) as caller:
        assert rows_of(await caller.infer("rows", *rows)) == rows
    assert sorted(len(batch) for batch in log.batches()[ran_before:]) == [2, MOST_ROWS]


@over_each_protocol
async def test_no_rows_are_refused(server: RunningServer, log: EventLog, over: str) -> None:
    """A request of no rows is refused with 400, and the model is not called."""
    before = log.events()
    async with calling(server, over) as caller:
        response = await caller.infer("rows")
    assert response.status_code == 400
    assert "rows" in response.detail
    assert log.events() == before


@over_each_protocol
async def test_first_in_first_out(server: RunningServer, log: EventLog, over: str) -> None:
    """Six requests of a whole batch each start and finish in the order in which they came."""
    ran_before = len(log.batches())
    finished: list[float] = []

    async with calling(server, over) as caller:

        async def send(value: float) -> None:
            response = await caller.infer("rows", *[[value]] * MOST_ROWS)
            assert response.status_code == 200
            finished.append(value)

        async with asyncio.TaskGroup() as group:
            group.create_task(send(1))
            await _until(server, "paddlewheel_running_requests", 1)
            for value in range(2, 7):
                group.create_task(send(value))
                await _until(server, "paddlewheel_queue_depth", value - 1)
    assert [batch[0] for batch in log.batches()[ran_before:]] == [1, 2, 3, 4, 5, 6]
    assert finished == [1, 2, 3, 4, 5, 6]
