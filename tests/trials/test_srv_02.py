"""SRV-02: memory does not grow with every new shape, and a worker over its ceiling is replaced without a loss."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Sequence

import pytest
from PIL import Image, ImageDraw, ImageFont

from conftest import RunningServer, StartServer
from trials.calls import Caller, calling, rows_of

FONT = "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc"
MOST_GROWTH = 1.05


def _sizes(count: int, largest: int) -> list[tuple[int, int]]:
    """Return distinct picture sizes, spread over widths and heights."""
    draw = random.Random(2)  # noqa: S311  # not for secrets
    sizes: dict[tuple[int, int], None] = {}
    while len(sizes) < count:
        sizes[draw.randrange(120, largest), draw.randrange(60, largest * 3 // 4)] = None
    return list(sizes)


def _picture(size: tuple[int, int]) -> bytes:
    image = Image.new("RGB", size, "white")
    font = ImageFont.truetype(FONT, min(size[1] // 2, size[0] // 6), index=2)
    ImageDraw.Draw(image).text((8, 4), f"{size[0]}x{size[1]}", "black", font)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


async def _pass(server: RunningServer, caller: Caller, pictures: Sequence[bytes]) -> float:
    """Send the pictures one by one and return the worker's highest resident size, in MB, looking every 20 requests."""
    (worker,) = server.workers()
    highest = 0
    for index, picture in enumerate(pictures):
        response = await caller.http.post("/ocr", content=picture)
        assert response.status_code == 200, response.text
        if index % 20 == 19 or index == len(pictures) - 1:
            highest = max(highest, worker.memory_info().rss)
    return highest / 1e6


@pytest.mark.parametrize(
    ("count", "largest"),
    [(20, 280), pytest.param(400, 640, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
    ids=["twenty", "four hundred"],
)
@pytest.mark.parametrize(("engine", "pack"), [("paddle", "ppocrv4-mobile"), ("openvino", "ppocrv6-tiny")])
async def test_new_sizes_cost_memory_once(
    start_server: StartServer, engine: str, pack: str, count: int, largest: int
) -> None:
    """Sizes that were seen need no more memory when they come again, and one size needs none at all."""
    server = start_server(
        f'[pool.default]\nworkers = 1\nnice = 0\n[models.ocr]\npack = "{pack}"\nengine = "{engine}"\n'
    )
    pictures = [_picture(size) for size in _sizes(count, largest)]
    async with calling(server) as caller:
        first = await _pass(server, caller, pictures)
        second = await _pass(server, caller, pictures)
        last = await _pass(server, caller, pictures[:1] * (count // 4))
    print(f"{engine}: {count} sizes {first:.0f} MB, again {second:.0f} MB, one size {last:.0f} MB")  # noqa: T201  # measured
    assert second < first * MOST_GROWTH
    assert last < first * MOST_GROWTH
    assert server.metric('paddlewheel_worker_restarts_total{pool="default",reason="memory"}') == 0, "not by recycling"
    assert server.stop() == 0


async def test_recycling_at_the_ceiling_loses_nothing(start_server: StartServer) -> None:
    """With a ceiling that every worker is over, each is replaced after a batch or so, and all 200 answers come."""
    server = start_server("""
[pool.default]
workers = 2
nice = 0
memory_limit_mb = 1
[models.echo]
pipeline = "tensor"
engine = "echo"
engine_options = { delay_s = 0.01 }
""")
    before = {worker.pid for worker in server.workers()}
    async with calling(server) as caller:
        numbers = iter(range(200))

        async def call() -> None:
            for number in numbers:
                assert rows_of(await caller.send("echo", number)) == [[number]]

        await asyncio.gather(*(call() for _ in range(8)))
    assert server.metric('paddlewheel_worker_restarts_total{pool="default",reason="memory"}') >= 2
    assert server.metric('paddlewheel_worker_restarts_total{pool="default",reason="crash"}') == 0
    assert before.isdisjoint(worker.pid for worker in server.workers())
