"""What the serving trials share: calls to echo models, raw connections, and reading of the echo's event log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx2
import numpy as np
import orjson
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status

from conftest import RunningServer
from paddlewheel.grpc.protos import open_inference_pb2 as pb

Rows = Sequence[Sequence[float]]
_CLOSE_TIMEOUT_S = 60
_STATUS_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
over_each_protocol = pytest.mark.parametrize("over", ["http", "grpc"])
"""Runs a trial once over HTTP and once over gRPC."""


def body(rows: Rows, **parameters: Any) -> bytes:
    """Return a request to an echo model; its one input has these `rows`."""
    columns = len(rows[0]) if rows else 1
    data = [value for row in rows for value in row]
    tensor = {"name": "input", "datatype": "FP32", "shape": [len(rows), columns], "data": data}
    return orjson.dumps({"inputs": [tensor], "parameters": parameters})


@dataclass(frozen=True)
class Reply:
    """How a call ended, the same over both protocols: `status_code` is HTTP's, or the one of gRPC's status."""

    status_code: int
    rows: list[list[float]]
    detail: str
    retry_after_s: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def rows_of(reply: Reply) -> list[list[float]]:
    """Return the rows that an echo model answered."""
    assert reply.status_code == 200, reply.detail
    return reply.rows


class Caller:
    """A client of one server that makes many calls at once."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def infer(self, model: str, *rows: Sequence[float], timeout_s: float | None = None) -> Reply:
        """Call `model` with `rows`."""
        headers = {} if timeout_s is None else {"X-Request-Timeout": str(timeout_s)}
        response = await self.http.post(f"/v2/models/{model}/infer", content=body(rows), headers=headers)
        answer = response.json()
        retry_after_s = float(response.headers["Retry-After"]) if "Retry-After" in response.headers else None
        if response.status_code != 200:
            return Reply(response.status_code, [], answer["error"], retry_after_s, response.headers)
        (output,) = answer["outputs"]
        return Reply(200, _in_rows(output["data"], output["shape"][1]), "", retry_after_s, response.headers)

    async def send(self, model: str, value: float, timeout_s: float | None = None) -> Reply:
        """Call `model` with one row of one value."""
        return await self.infer(model, [value], timeout_s=timeout_s)


class GrpcCaller(Caller):
    """One that calls over gRPC."""

    def __init__(self, http: httpx2.AsyncClient, channel: grpc.aio.Channel) -> None:
        super().__init__(http)
        self._infer = infer_on(channel)

    async def infer(self, model: str, *rows: Sequence[float], timeout_s: float | None = None) -> Reply:
        """Call `model` with `rows`."""
        try:
            response = await self._infer(message(model, *rows), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            status = rpc_status.from_call(error)
            info = RetryInfo()
            retry_after_s = info.retry_delay.ToSeconds() if status and status.details[0].Unpack(info) else None
            return Reply(_STATUS_CODES[error.code()], [], error.details() or "", retry_after_s)
        flat = np.frombuffer(response.raw_output_contents[0], np.float32).tolist()
        return Reply(200, _in_rows(flat, response.outputs[0].shape[1]), "")


def infer_on(channel: grpc.aio.Channel) -> grpc.aio.UnaryUnaryMultiCallable:
    """Return the call ModelInfer."""
    return channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelInferResponse.FromString,
    )


def stream_on(channel: grpc.aio.Channel) -> grpc.aio.StreamStreamCall:
    """Begin a call of ModelStreamInfer."""
    return channel.stream_stream(
        "/inference.GRPCInferenceService/ModelStreamInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelStreamInferResponse.FromString,
    )()


def message(model: str, *rows: Sequence[float]) -> pb.ModelInferRequest:
    """Return a request to an echo model as it goes over gRPC."""
    tensor = pb.ModelInferRequest.InferInputTensor(name="input", datatype="FP32")
    tensor.shape.extend((len(rows), len(rows[0]) if rows else 1))
    tensor.contents.fp32_contents.extend(value for row in rows for value in row)
    return pb.ModelInferRequest(model_name=model, inputs=[tensor])


def _in_rows(flat: list[float], columns: int) -> list[list[float]]:
    return [flat[start : start + columns] for start in range(0, len(flat), columns)]


@asynccontextmanager
async def calling(server: RunningServer, over: str = "http") -> AsyncIterator[Caller]:
    """Give a client with time-outs that no healthy server reaches, and as many connections as calls."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(base_url=server.url, timeout=60, limits=limits) as http:
        if over == "http":
            yield Caller(http)
            return
        async with grpc.aio.insecure_channel(server.grpc) as channel:
            yield GrpcCaller(http, channel)


def http_post(model: str, value: float) -> bytes:
    """Return a whole request to an echo model as it goes over a connection."""
    content = body([[value]])
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: test\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


class Connection:
    """A bare connection to a server, for what no proper client does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send `data`."""
        self._writer.write(data)
        await self._writer.drain()

    async def status(self) -> int:
        """Return the status of the next response, after reading it whole."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.splitlines()[1:] if line)
        await self._reader.readexactly(int(fields[b"content-length"]))
        return int(head.split()[1])

    async def rest(self) -> bytes:
        """Return what comes until the server closes the connection."""
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            return await self._reader.read()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """Give a connection to the server at `url`; at the end it hangs up."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


class EventLog:
    """The event log of an echo model."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def events(self) -> list[str]:
        """Return the events so far: `start N` and `finish N`."""
        return self.path.read_text().splitlines() if self.path.exists() else []

    def batches(self) -> list[list[float]]:
        """Return the values of each batch that was run; for a model that only one worker runs."""
        batches: list[list[float]] = [[]]
        for event in self.events():
            kind, value = event.split()
            if kind == "start":
                batches[-1].append(float(value))
            elif batches[-1]:
                batches.append([])
        return [batch for batch in batches if batch]
