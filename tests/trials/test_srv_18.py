"""SRV-18: the number of series does not grow with traffic, and every outcome is counted exactly once."""

from __future__ import annotations

import asyncio
import random
import re
import string
from collections import Counter
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack

import pytest

from conftest import RunningServer, StartServer
from trials.calls import Caller, Reply, calling, connected, http_post
from waiting import eventually

FAILS_ON = 13.0
SLOW_S = 2.0


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> RunningServer:
    """Return a server with a model that can fail, and one that is slow and has a short queue."""
    return start_server(f"""
[pool.default]
workers = 1
nice = 0
[models.echo]
pipeline = "tensor"
engine = "echo"
engine_options = {{ fail_on = {FAILS_ON} }}
[models.slow]
pipeline = "tensor"
engine = "echo"
batching = {{ max_batch_size = 1, max_queue_size = 5 }}
engine_options = {{ delay_s = {SLOW_S} }}
""")


def _series(server: RunningServer) -> dict[str, float]:
    """Return every series and its value."""
    text = server.client.get("/metrics").text
    found = re.findall(r"^([^#\s][^ ]*(?:\{.*\})?) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found if "_created" not in name}


def _outcomes(server: RunningServer) -> Counter[str]:
    """Return how many requests ended how, over all models."""
    counts: Counter[str] = Counter()
    for name, value in _series(server).items():
        if match := re.fullmatch(r'paddlewheel_requests_total\{.*outcome="(\w+)".*\}', name):
            counts[match[1]] += round(value)
    return counts


async def test_random_traffic_makes_no_series(server: RunningServer) -> None:
    """2,000 paths, 200 model names and 50 methods that nobody knows add a handful of series, not one each."""
    draw = random.Random(18)  # noqa: S311  # not for secrets
    words = ["".join(draw.choices(string.ascii_letters, k=12)) for _ in range(2250)]

    async def spread(calls: list[tuple[str, str]], caller: Caller) -> None:
        pending = iter(calls)

        async def work() -> None:
            for method, path in pending:
                assert (await caller.http.request(method, path, content=b"{}")).status_code in (400, 404, 405, 503)

        await asyncio.gather(*(work() for _ in range(16)))

    async with calling(server) as caller:
        # One of each, so that what any such call adds is there before.
        await spread([("GET", "/first"), ("POST", "/v2/models/first/infer"), ("PUT", "/livez")], caller)
        before = len(_series(server))
        await spread([("GET", f"/{word}/{word[:3]}") for word in words[:2000]], caller)
        await spread([("POST", f"/v2/models/{word}/infer") for word in words[2000:2200]], caller)
        await spread([("GET", f"/v2/models/{word}/ready") for word in words[2000:2200]], caller)
    await _odd_methods(server, words[2200:])
    # The buckets of three histograms (models of /ready, odd methods on a route and on none).
    assert len(_series(server)) - before <= 3 * 18 + 10


async def _odd_methods(server: RunningServer, words: list[str]) -> None:
    """Send 50 methods: ten that HTTP knows and no route takes, the others made up."""
    known = ["PROPFIND", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "SEARCH", "REPORT", "PURGE", "LINK"]
    async with calling(server) as caller:
        for method in known:
            assert (await caller.http.request(method, "/livez")).status_code == 405
        for word in words[:40]:
            assert (await caller.http.request(word.upper(), "/livez")).status_code == 400


async def test_every_outcome_is_counted_once(server: RunningServer) -> None:
    """Five requests for each way to end: each counter grows by five, the sum by what was sent; none is in progress."""
    before, answered_before = _outcomes(server), _answered(server)
    async with calling(server) as caller:
        await _five(caller.send("echo", 1) for _ in range(5))
        await _five(caller.http.post("/v2/models/echo/infer", content=b"{") for _ in range(5))
        await _five(caller.infer("echo") for _ in range(5))
        await _five(caller.send("echo", FAILS_ON) for _ in range(5))
        await _five(caller.send("none", 1) for _ in range(5))
        await _in_the_queue(server, caller)
    for _ in range(5):
        async with connected(server.url) as connection:
            await connection.send(http_post("echo", 1)[:-3])
        async with connected(server.url) as connection:
            head = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: test\r\nContent-Length: 100000001\r\n\r\n"
            await connection.send(head)
            assert (await connection.rest()).startswith(b"HTTP/1.1 413 ")
    expected = {
        "OK": 5 + 1,
        "INVALID_ARGUMENT": 5 + 5 + 5,
        "INTERNAL": 5,
        "NOT_FOUND": 5,
        "DEADLINE_EXCEEDED": 5,
        "RESOURCE_EXHAUSTED": 5,
        "CANCELLED": 5 + 5,
    }

    async def look() -> Counter[str]:
        return await asyncio.to_thread(_outcomes, server) - before

    await eventually(look, lambda seen: seen == expected, 5, f"the counters are {expected}")
    assert _answered(server) - answered_before == sum(expected.values())
    gauges = ("queue_depth", "running_requests")
    assert [server.metric(f'paddlewheel_{each}{{model="slow"}}') for each in gauges] == [0, 0]


async def _five(calls: Iterable[Awaitable[Reply]]) -> list[int]:
    """Make five calls and return their statuses."""
    statuses = [response.status_code for response in await asyncio.gather(*calls)]
    assert len(statuses) == 5
    return statuses


async def _in_the_queue(server: RunningServer, caller: Caller) -> None:
    """While one runs, let five hang up, then five wait in vain and five find the queue full."""
    running = asyncio.create_task(caller.send("slow", 1))
    await _depth(server, "running_requests", 1)
    async with AsyncExitStack() as stack:
        for _ in range(5):
            connection = await stack.enter_async_context(connected(server.url))
            await connection.send(http_post("slow", 1))
        await _depth(server, "queue_depth", 5)
    await _depth(server, "queue_depth", 0)
    async with asyncio.TaskGroup() as group:
        late = group.create_task(_five(caller.send("slow", 1, timeout_s=0.3) for _ in range(5)))
        await _depth(server, "queue_depth", 5)
        assert await _five(caller.send("slow", 1) for _ in range(5)) == [503] * 5
    assert late.result() == [504] * 5
    assert (await running).status_code == 200


async def _depth(server: RunningServer, gauge: str, value: int) -> None:
    async def look() -> float:
        return await asyncio.to_thread(server.metric, f'paddlewheel_{gauge}{{model="slow"}}')

    await eventually(look, lambda seen: seen == value, SLOW_S, f"{gauge} is {value}")


def _answered(server: RunningServer) -> int:
    """Return how many calls of the route for inference the HTTP edge has seen end."""
    total = 0.0
    for name, value in _series(server).items():
        if name.startswith("http_server_request_duration_seconds_count") and 'route="/v2/models/{model}/infer"' in name:
            total += value
    return round(total)
