"""SRV-03: one bad item does not fail its batch mates, whether it raises, cannot be read, crashes or hangs."""

from __future__ import annotations

import asyncio
import io

import pytest
from PIL import Image

from conftest import RunningServer, StartServer
from trials.calls import Caller, EventLog, calling, over_each_protocol, rows_of

GOOD, RAISES, ENDS, HANGS = 1.0, 13.0, 14.0, 15.0


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> EventLog:
    """Return the event log of the model."""
    return EventLog(tmp_path_factory.mktemp("srv-03") / "events")


@pytest.fixture(scope="module")
def server(start_server: StartServer, log: EventLog) -> RunningServer:
    """Return a server whose one worker waits until it has four requests."""
    return start_server(f"""
[pool.default]
workers = 1
nice = 0
hang_timeout_s = 1
[models.boom]
pipeline = "tensor"
engine = "echo"
batching = {{ max_batch_size = 4, max_queue_delay_microseconds = 300_000 }}
[models.boom.engine_options]
fail_on = {RAISES}
exit_on = {ENDS}
hang_on = {HANGS}
event_log = "{log.path}"
[models.ocr]
pack = "ppocrv6-tiny"
batching = {{ max_batch_size = 4, max_queue_delay_microseconds = 300_000 }}
""")


async def _round(caller: Caller, bad: float) -> list[int]:
    """Send `bad` and three good requests at once; return the statuses, after checking the good answers."""
    values = [GOOD, bad, GOOD + 1, GOOD + 2]
    responses = await asyncio.gather(*(caller.send("boom", value) for value in values))
    for value, response in zip(values, responses, strict=True):
        assert value == bad or rows_of(response) == [[value]]
    return [response.status_code for response in responses]


@pytest.mark.parametrize(
    ("bad", "code"),
    [(RAISES, "INTERNAL"), (ENDS, "WORKER_CRASHED"), (HANGS, "WORKER_CRASHED")],
    ids=["raises", "ends its worker", "hangs"],
)
@over_each_protocol
async def test_one_of_a_batch_fails(server: RunningServer, log: EventLog, bad: float, code: str, over: str) -> None:
    """Exactly the bad one gets an error, of its own kind; its three mates and the next four get their answers."""
    series = f'paddlewheel_requests_total{{model="boom",outcome="{code}"}}'
    before, began = server.metric(series), len(log.events())
    async with calling(server, over) as caller:
        assert await _round(caller, bad) == [200, 500, 200, 200]
        assert [event.split()[0] for event in log.events()[began:][:4]] == ["start"] * 4, "the four shared a batch"
        await asyncio.to_thread(server.wait_ready)
        assert await _round(caller, GOOD + 3) == [200] * 4
    assert server.metric(series) == before + 1


def _picture(size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.effect_noise(size, 80).convert("RGB").save(file, "JPEG", quality=95)
    return file.getvalue()


async def test_a_picture_that_fails_in_decode(server: RunningServer) -> None:
    """A picture that breaks off half way gets 422; its three mates are read."""
    good = [_picture((200 + 20 * index, 120)) for index in range(3)]
    broken = _picture((300, 200))[:-9000]
    sent = 'paddlewheel_batch_size_sum{model="ocr"}', 'paddlewheel_batch_size_count{model="ocr"}'
    before = [server.metric(series) for series in sent]
    async with calling(server) as caller:
        pictures = [good[0], broken, good[1], good[2]]
        responses = await asyncio.gather(*(caller.http.post("/ocr", content=picture) for picture in pictures))
    assert [response.status_code for response in responses] == [200, 422, 200, 200]
    assert [server.metric(series) for series in sent] == [before[0] + 4, before[1] + 1], "the four shared a batch"


@over_each_protocol
async def test_one_with_a_wrong_shape_is_refused_before_the_batch(server: RunningServer, over: str) -> None:
    """A request that no batch could hold gets 400; the others do not wait for it."""
    async with calling(server, over) as caller:
        calls = [caller.send("boom", GOOD), caller.infer("boom"), caller.send("boom", GOOD)]
        assert [response.status_code for response in await asyncio.gather(*calls)] == [200, 400, 200]
