"""What happens when it gets hard: overload, a killed worker, changing sizes, many small calls, starts."""

from __future__ import annotations

import asyncio
import io
import signal
import time
from collections import Counter
from typing import Any

import httpx2
import numpy as np
from benchmarks.load import Sample, client, closed_loop, median, open_loop, quantile_ms, rate, timed
from benchmarks.ocr import SAMPLES, to_ours
from benchmarks.processes import Server, ours
from PIL import Image

_PATIENCE_S = 6.0
_CARD = (SAMPLES / "card.jpg").read_bytes()


async def _probe(server: Server, stop: asyncio.Event) -> list[Sample]:
    """Ask whether the server lives, fifty times a second."""
    samples = []
    async with client() as http:
        while not stop.is_set():
            samples.append(await timed(lambda each: each.get(f"{server.url}/livez"), http, 0.0))
            await asyncio.sleep(0.02)
    return samples


async def _overload(server: Server, seconds: float, *, tells: bool) -> dict[str, Any]:
    headers = {"X-Request-Timeout": f"{_PATIENCE_S:g}"} if tells else {}
    stop = asyncio.Event()
    probe = asyncio.create_task(_probe(server, stop))
    before = server.pss_mb()
    samples = await open_loop(
        lambda http: http.post(f"{server.url}/ocr", content=_CARD, headers=headers), 8.0, seconds, _PATIENCE_S
    )
    async with client() as http:
        after_burst = await timed(lambda each: each.post(f"{server.url}/ocr", content=_CARD), http, 0.0)
    stop.set()
    live = await probe
    refused = [sample for sample in samples if sample.status == 503]
    told = [each for each in refused if each.response is not None and "retry-after" in each.response.headers]
    return {
        "clients tell their deadline": tells,
        "sent": len(samples),
        "status": dict(Counter(sample.status for sample in samples)),
        "refused with Retry-After": len(told),
        "refusal p99 ms": round(quantile_ms(refused, 0.99), 1),
        "answer p50/p95 ms": [round(quantile_ms([s for s in samples if s.status == 200], q)) for q in (0.5, 0.95)],
        "answered a second": round(rate(samples), 2),
        "next request ms": round(after_burst.took_s * 1000),
        "livez p50/p99 ms": [round(quantile_ms(live, q), 1) for q in (0.5, 0.99)],
        "PSS MB before/after": [round(before), round(server.pss_mb())],
    }


def overload(seconds: float) -> list[dict[str, Any]]:
    """Eight arrivals a second, clients that leave after six; with and without a deadline that they tell."""
    with ours() as server:
        asyncio.run(closed_loop(to_ours(server, _CARD), 4, 3))
        return [asyncio.run(_overload(server, seconds, tells=tells)) for tells in (True, False)]


async def _whole(server: Server, http: httpx2.AsyncClient, before: set[int]) -> bool:
    """Tell whether every worker is up, not all of them from `before`."""
    metrics = (await http.get(f"{server.url}/metrics")).text
    now = {each.pid for each in server.workers()}
    return 'state="starting"} 0.0' in metrics and len(now) == len(before) and now != before


def kill() -> dict[str, Any]:
    """``kill -9`` of a worker in a burst of 24: when the pool is whole again, and who was answered."""

    async def burst(server: Server) -> tuple[list[Sample], float]:
        async with client() as http:
            began = time.perf_counter()
            calls = [asyncio.create_task(timed(to_ours(server, _CARD), http, began)) for _ in range(24)]
            await asyncio.sleep(1.0)
            before = {each.pid for each in server.workers()}
            server.workers()[0].send_signal(signal.SIGKILL)
            killed = time.perf_counter()
            while not await _whole(server, http, before):
                await asyncio.sleep(0.02)  # another process changes, and tells nobody
            whole = time.perf_counter() - killed
            return list(await asyncio.gather(*calls)), whole

    with ours() as server:
        asyncio.run(closed_loop(to_ours(server, _CARD), 2, 2))
        samples, whole_s = asyncio.run(burst(server))
    return {"status": dict(Counter(sample.status for sample in samples)), "pool whole again s": round(whole_s, 2)}


def shapes(count: int) -> dict[str, Any]:
    """`count` pictures of distinct sizes twice, then as many of one size: the workers' resident memory."""
    rng = np.random.default_rng(1)
    sizes = [(int(width), int(height)) for width, height in rng.integers(200, 1400, (count, 2))]
    page = Image.open(SAMPLES / "page.png").convert("RGB")

    def picture(size: tuple[int, int]) -> bytes:
        file = io.BytesIO()
        page.crop((90, 60, 90 + min(size[0], 1100), 60 + min(size[1], 1500))).resize(size).save(file, "JPEG")
        return file.getvalue()

    def resident_mb(server: Server) -> float:
        return round(sum(each.memory_info().rss for each in server.workers()) / 1e6)

    with ours("models.ocr.pack=ppocrv6-tiny", "pool.default.workers=1") as server, httpx2.Client(timeout=60) as http:
        curve = [resident_mb(server)]
        for these in (sizes, sizes, [(800, 600)] * count):
            for size in these:
                http.post(f"{server.url}/ocr", content=picture(size), params={"boxes_only": "false"}).raise_for_status()
            curve.append(resident_mb(server))
    growth = 100 * (curve[2] - curve[1]) / curve[1]
    return {"RSS MB at start, after pass 1, 2, one size": curve, "growth of pass 2 %": round(growth, 1)}


def start(rounds: int) -> dict[str, Any]:
    """From the command to ready, packs present; and what the first call after that costs against the tenth."""
    times, ratios = [], []
    for _ in range(rounds):
        with ours() as server:
            times.append(server.ready_s)
            calls = [sample.took_s for sample in asyncio.run(closed_loop(to_ours(server, _CARD), 1, 0, least=12))]
            ratios.append(calls[0] / median(calls[8:]))
    return {
        "start to ready s, median": round(median(times), 2),
        "all": [round(each, 2) for each in times],
        "first call / about the tenth, median": round(median(ratios), 2),
    }


def submit(seconds: float) -> dict[str, Any]:
    """`POST /ocr/async` four times a second while eight clients keep the workers busy."""

    async def measure(server: Server) -> list[Sample]:
        busy = asyncio.create_task(closed_loop(to_ours(server, _CARD), 8, seconds + 1))
        await asyncio.sleep(1)
        samples = await open_loop(
            lambda http: http.post(f"{server.url}/ocr/async", content=_CARD), 4.0, seconds, _PATIENCE_S
        )
        await busy
        return samples

    with ours() as server:
        asyncio.run(closed_loop(to_ours(server, _CARD), 2, 2))
        samples = asyncio.run(measure(server))
    taken = [sample for sample in samples if sample.status == 202]
    return {"taken": len(taken), "p50/p99 ms": [round(quantile_ms(taken, share), 1) for share in (0.5, 0.99)]}
