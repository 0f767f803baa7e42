"""What the serving trials share: calls to echo models, raw connections, and reading of the echo's event log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import orjson

Rows = Sequence[Sequence[float]]
_CLOSE_TIMEOUT_S = 60


def body(rows: Rows, **parameters: Any) -> bytes:
    """Return a request to an echo model; its one input has these `rows`."""
    columns = len(rows[0]) if rows else 1
    data = [value for row in rows for value in row]
    tensor = {"name": "input", "datatype": "FP32", "shape": [len(rows), columns], "data": data}
    return orjson.dumps({"inputs": [tensor], "parameters": parameters})


def rows_of(response: httpx2.Response) -> list[list[float]]:
    """Return the rows that an echo model answered."""
    assert response.status_code == 200, response.text
    (output,) = response.json()["outputs"]
    columns = output["shape"][1]
    return [output["data"][start : start + columns] for start in range(0, len(output["data"]), columns)]


class Caller:
    """A client of one server that makes many calls at once."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def infer(self, model: str, *rows: Sequence[float], timeout_s: float | None = None) -> httpx2.Response:
        """Call `model` with `rows`."""
        headers = {} if timeout_s is None else {"X-Request-Timeout": str(timeout_s)}
        return await self.http.post(f"/v2/models/{model}/infer", content=body(rows), headers=headers)

    async def send(self, model: str, value: float, timeout_s: float | None = None) -> httpx2.Response:
        """Call `model` with one row of one value."""
        return await self.infer(model, [value], timeout_s=timeout_s)


@asynccontextmanager
async def calling(url: str) -> AsyncIterator[Caller]:
    """Give a client with time-outs that no healthy server reaches, and as many connections as calls."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(base_url=url, timeout=60, limits=limits) as http:
        yield Caller(http)


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
