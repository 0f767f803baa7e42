"""A closed loop of tensor calls in a process of its own, light enough to load a server that answers thousands a second.

python -m benchmarks.tensor_client PROTOCOL ADDRESS FLOATS CLIENTS SECONDS      # json, binary, grpc or predict

The model is `echo`, the tensor FP32 [1, FLOATS]. Requests are made once and sent again and again; of an answer the
status and the length are looked at. HTTP goes over one connection a client, gRPC over one channel in all.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import grpc
import numpy as np

from paddlewheel.grpc.protos import model_service_pb2, open_inference_pb2

MODEL = "echo"
GRPC_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
LARGE = 10_000_000
"""Bytes from which a call takes so long that its first is measured too."""
Call = Callable[[], Awaitable[None]]


def http_request(host: str, array: np.ndarray, *, binary: bool) -> list[bytes]:
    """Return a whole request, in the pieces in which it is written."""
    tensor = {"name": "input", "shape": array.shape, "datatype": "FP32"}
    head = f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: {host}\r\n"
    if not binary:
        body = json.dumps({"inputs": [tensor | {"data": array.ravel().tolist()}]}).encode()
        return [(head + f"Content-Length: {len(body)}\r\n\r\n").encode(), body]
    data = array.tobytes()
    inputs = {"inputs": [tensor | {"parameters": {"binary_data_size": len(data)}}]}
    text = json.dumps(inputs | {"parameters": {"binary_data_output": True}}).encode()
    head += f"Inference-Header-Content-Length: {len(text)}\r\nContent-Length: {len(text) + len(data)}\r\n\r\n"
    return [head.encode() + text, data]


async def http_call(address: str, pieces: list[bytes], limit: int) -> Call:
    """Open a connection and return a call over it."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=limit)

    async def call() -> None:
        for piece in pieces:
            writer.write(piece)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)

    return call


def grpc_call(channel: grpc.aio.Channel, array: np.ndarray, *, predict: bool) -> Call:
    """Return a call over `channel`."""
    if predict:
        path = "/paddle_inference.ModelService/Predict"
        message = model_service_pb2.PredictRequest(input_data=array.ravel(), shape=array.shape, model_name=MODEL)
    else:
        path = "/inference.GRPCInferenceService/ModelInfer"
        message = open_inference_pb2.ModelInferRequest(model_name=MODEL, raw_input_contents=[array.tobytes()])
        message.inputs.add(name="input", datatype="FP32", shape=array.shape)
    data, method = message.SerializeToString(), channel.unary_unary(path)

    async def call() -> None:
        assert len(await method(data)) > array.nbytes

    return call


async def main(protocol: str, address: str, floats: int, clients: int, seconds: float) -> None:
    """Print calls a second and the median of how long they took, as JSON."""
    array = np.random.default_rng(0).random((1, floats), dtype=np.float32)
    times: list[float] = []

    async def loop(call: Call) -> None:
        if array.nbytes < LARGE:
            await call()
        mine = 0
        while (began := time.perf_counter()) - started < seconds or not mine:
            await call()
            mine += 1
            times.append(time.perf_counter() - began)

    async with AsyncExitStack() as stack:
        if protocol in {"json", "binary"}:
            pieces = http_request(address, array, binary=protocol == "binary")
            calls = [await http_call(address, pieces, max(1 << 16, array.nbytes)) for _ in range(clients)]
        else:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=GRPC_OPTIONS))
            calls = [grpc_call(channel, array, predict=protocol == "predict")] * clients
        started = time.perf_counter()
        await asyncio.gather(*map(loop, calls))
        took = time.perf_counter() - started
    times.sort()
    print(json.dumps({"rate": round(len(times) / took, 1), "p50_ms": round(times[len(times) // 2] * 1000, 3)}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
