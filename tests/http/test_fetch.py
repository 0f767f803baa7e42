"""Pictures that callers name by their address, against a real server at that address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from conftest import StartServer
from paddlewheel.config import FetchSettings
from paddlewheel.errors import InvalidArgumentError, PayloadTooLargeError
from paddlewheel.http.fetch import fetch_picture

MOST = 1000


@asynccontextmanager
async def origin(status: str = "200 OK", body: bytes = b"picture", headers: str = "", *, mute: bool = False) -> Any:
    """Give the address of a server that answers everything so, and the requests that it got."""
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        if mute:
            await reader.read()
        else:
            head = f"HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", seen
    finally:
        server.close()


@pytest.fixture
async def host() -> AsyncIterator[str]:
    """Return host and port of a server that answers with a picture."""
    async with origin() as (address, _):
        yield address


async def test_from_a_listed_host(host: str) -> None:
    """The bytes come as they are."""
    assert await fetch_picture(f"http://{host}/a?b", FetchSettings(hosts=(host,)), MOST) == b"picture"


async def test_only_from_a_listed_host() -> None:
    """Another host, another port, or none listed at all: nothing is asked, and the text says what is allowed."""
    async with origin() as (host, seen):
        for hosts, url, expected in (
            ((), f"http://{host}/", "not fetched from URLs here"),
            (("example.com",), f"http://{host}/", "allowed: example.com"),
            ((host.partition(":")[0],), f"http://{host}/", "not fetched from"),
            ((host,), f"http://user@{host}/", "no address of a picture"),
            ((host,), f"ftp://{host}/", "no address of a picture"),
            ((host,), "file:///etc/passwd", "no address of a picture"),
            ((host,), f"http://{host}0000000/", "no address of a picture"),
            ((host,), 7, "no address of a picture"),
        ):
            with pytest.raises(InvalidArgumentError, match=expected):
                await fetch_picture(url, FetchSettings(hosts=hosts), MOST)
        assert not seen


@pytest.mark.parametrize("status", ["404 Not Found", "302 Found", "500 Oh"])
async def test_another_status(status: str) -> None:
    """What is not there is said; a redirect, which could lead anywhere, is not followed."""
    async with origin(status, headers="Location: http://127.0.0.1:1/\r\n") as (host, _):
        with pytest.raises(InvalidArgumentError, match=f"status {status[:3]}"):
            await fetch_picture(f"http://{host}/", FetchSettings(hosts=(host,)), MOST)


async def test_too_large_or_too_slow_or_nobody_there() -> None:
    """Size and time are bounded; texts name the host, never the whole address."""
    async with origin(body=bytes(MOST + 1)) as (host, _):
        with pytest.raises(PayloadTooLargeError, match="more than 1000 bytes"):
            await fetch_picture(f"http://{host}/", FetchSettings(hosts=(host,)), MOST)
    async with origin(mute=True) as (host, _):
        with pytest.raises(InvalidArgumentError, match=r"within 0\.2 s"):
            await fetch_picture(f"http://{host}/", FetchSettings(hosts=(host,), timeout_s=0.2), MOST)
    with pytest.raises(InvalidArgumentError, match=r"could not be fetched from '127\.0\.0\.1:1'") as refusal:
        await fetch_picture("http://127.0.0.1:1/secret", FetchSettings(hosts=("127.0.0.1:1",)), MOST)
    assert "secret" not in str(refusal.value)


async def test_read_like_one_that_was_sent(start_server: StartServer, card: bytes) -> None:
    """The text is that of the same picture in the body, and the log has no address in it."""
    async with origin(body=card) as (host, _):
        server = start_server(
            f'[pool.default]\nworkers = 1\n[models.ocr]\npack = "ppocrv6-tiny"\n[fetch]\nhosts = ["{host}"]\n'
        )
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
            sent = await client.post("/ocr", content=card)
            fetched = await client.post("/ocr", json={"url": f"http://{host}/my-secret.jpg", "boxes_only": False})
    assert fetched.status_code == 200, fetched.text
    assert fetched.json()["text"] == sent.json()["text"]
    assert "my-secret" not in server.log.read_text()
