"""SRV-01: a predictor is never shared, so no caller ever gets another caller's answer."""

from __future__ import annotations

import asyncio
import random

import grpc
import pytest

from conftest import RunningServer, StartServer
from paddlewheel.grpc.protos import open_inference_pb2 as pb
from paddlewheel.inference import Tensor
from trials.calls import Caller, calling, infer_on, rows_of
from trials.numbers import picture_of
from waiting import eventually

CALLERS = 32
SETTINGS = """
[pool.default]
workers = 2
nice = 0
[models.echo]
pipeline = "tensor"
engine = "echo"
[models.tag]
pipeline = "tensor"
engine = "echo"
[models.tag.engine_options]
delay_s = 0.002
[models.ocr]
pack = "ppocrv6-tiny"
batching = { max_queue_size = 200 }
"""


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> RunningServer:
    """Return a server with two workers that hold two echoes and OCR."""
    return start_server(SETTINGS)


async def test_two_thousand_tensors_come_back_to_their_callers(server: RunningServer) -> None:
    """32 callers, half of them over gRPC, 2,000 requests to two models in eight shapes: each gets its own values."""
    numbers = iter(range(2000))
    mismatches: list[int] = []

    async def call_on(caller: Caller) -> None:
        for number in numbers:
            rows = [[float(number)] * (1 + number % 4)] * (1 + number % 2)
            answer = rows_of(await caller.infer("tag" if number % 5 == 0 else "echo", *rows))
            if answer != rows:
                mismatches.append(number)

    async with calling(server) as over_http, calling(server, "grpc") as over_grpc:
        await asyncio.gather(*(call_on(caller) for caller in (over_http, over_grpc) * (CALLERS // 2)))
    assert not mismatches


async def test_every_picture_comes_back_with_its_own_number(server: RunningServer) -> None:
    """64 numbers in eight sizes, at once, as jobs and over gRPC, mixed: every answer has the number that was sent."""
    draw = random.Random(1)  # noqa: S311  # not for secrets
    numbers = [str(draw.randrange(100_000, 1_000_000)) for _ in range(64)]
    pictures = {number: picture_of(number, 0.8 + 0.2 * (index % 8)) for index, number in enumerate(numbers)}

    async with calling(server) as caller:

        async def read_now(number: str) -> tuple[str, str]:
            response = await caller.http.post("/ocr", content=pictures[number])
            return number, response.json()["text"]

        async def read_over_grpc(channel: grpc.aio.Channel, number: str) -> tuple[str, str]:
            image = pb.ModelInferRequest.InferInputTensor(name="image", datatype="BYTES", shape=[1])
            image.contents.bytes_contents.append(pictures[number])
            response = await infer_on(channel)(pb.ModelInferRequest(model_name="ocr", inputs=[image]))
            lines = Tensor("text", "BYTES", tuple(response.outputs[0].shape), response.raw_output_contents[0])
            return number, "\n".join(lines.strings())

        async def read_later(number: str) -> tuple[str, str]:
            submitted = await caller.http.post("/ocr/async", content=pictures[number])
            assert submitted.status_code == 202, submitted.text
            url = submitted.json()["status_url"]
            response = await eventually(
                lambda: caller.http.get(url), lambda response: response.status_code == 200, 60, "the job is done"
            )
            return number, response.json()["text"]

        async with grpc.aio.insecure_channel(server.grpc) as channel:
            over_grpc = (read_over_grpc(channel, number) for number in numbers[::2])
            answers = await asyncio.gather(*map(read_now, numbers), *map(read_later, numbers), *over_grpc)
    assert [(sent, read) for sent, read in answers if sent != read] == []
