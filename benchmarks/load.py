"""Load: closed loops (so many clients, each sends when it was answered) and open ones (arrivals whatever happens)."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx2

Send = Callable[[httpx2.AsyncClient], Awaitable[httpx2.Response]]


@dataclass(frozen=True)
class Sample:
    """One call: when it was sent, how long it took, and its status; 0 where the client gave up."""

    at_s: float
    took_s: float
    status: int
    response: httpx2.Response | None = None


def client(timeout_s: float = 120.0) -> httpx2.AsyncClient:
    """Return a client with as many connections as are asked for."""
    return httpx2.AsyncClient(timeout=timeout_s, limits=httpx2.Limits(max_connections=None))


async def timed(send: Send, http: httpx2.AsyncClient, began: float) -> Sample:
    """Make one call."""
    at = time.perf_counter()
    try:
        response = await send(http)
    except httpx2.TransportError:
        return Sample(at - began, time.perf_counter() - at, 0)
    return Sample(at - began, time.perf_counter() - at, response.status_code, response)


async def closed_loop(send: Send, clients: int, seconds: float, least: int = 2) -> list[Sample]:
    """Return the calls of `clients` clients over `seconds`, at least `least` calls each."""
    began = time.perf_counter()
    samples: list[Sample] = []

    async def one(http: httpx2.AsyncClient) -> None:
        calls = 0
        while calls < least or time.perf_counter() - began < seconds:
            samples.append(await timed(send, http, began))
            calls += 1

    async with client() as http:
        await asyncio.gather(*(one(http) for _ in range(clients)))
    return samples


async def open_loop(send: Send, rate: float, seconds: float, patience_s: float) -> list[Sample]:
    """Return the calls that arrive `rate` times a second over `seconds`; each client leaves after `patience_s`."""
    began = time.perf_counter()
    async with client(patience_s) as http:
        tasks = []
        for number in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            tasks.append(asyncio.create_task(timed(send, http, began)))
        return list(await asyncio.gather(*tasks))


def quantile_ms(samples: Sequence[Sample], share: float) -> float:
    """Return a quantile of how long calls took, in milliseconds."""
    times = sorted(sample.took_s for sample in samples)
    return times[min(len(times) - 1, int(len(times) * share))] * 1000 if times else float("nan")


def rate(samples: Sequence[Sample]) -> float:
    """Return the calls answered with 200 a second, from the first sent to the last answered."""
    good = [sample for sample in samples if sample.status == 200]
    end = max((sample.at_s + sample.took_s for sample in good), default=0.0)
    return len(good) / end if end else 0.0


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)
