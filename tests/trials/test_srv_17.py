"""SRV-17: one port has one server, and workers made after a warm-up work."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import time

import pytest

from conftest import RunningServer, StartServer
from trials.calls import calling, rows_of
from waiting import eventually

SETTINGS = """
[pool.default]
workers = 2
nice = 0
[models.one]
pipeline = "tensor"
engine = "echo"
batching = { max_queue_size = 200 }
[models.ocr]
pack = "ppocrv6-tiny"
"""


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> RunningServer:
    """Return a server with engines imported before its two workers were forked."""
    return start_server(SETTINGS)


def _start_on(port: int, grpc_port: int = 0) -> tuple[subprocess.CompletedProcess[str], float]:
    ports = ["--port", str(port), "--grpc-port", str(grpc_port)]
    command = [sys.executable, "-m", "paddlewheel", "serve", *ports, "--set", "models={}"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done, time.monotonic() - began


async def test_a_second_server_on_the_port_does_not_start(server: RunningServer) -> None:
    """It ends at once with status 1 and the port in one line; the first server answers everything that follows."""
    port = int(server.url.rpartition(":")[2])
    done, took_s = await asyncio.to_thread(_start_on, port)
    assert done.returncode == 1
    assert re.fullmatch(rf"Error: Cannot listen on 127\.0\.0\.1 port {port}: .*--port.*\n", done.stderr)
    assert took_s < 10
    async with calling(server) as caller:
        answers = await asyncio.gather(*(caller.send("one", value) for value in range(50)))
    assert [rows_of(answer) for answer in answers] == [[[value]] for value in range(50)]


def test_a_port_that_something_else_holds() -> None:
    """A port that another program has, not a server of ours, is named in the same way."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done, _ = _start_on(port)
    assert done.returncode == 1
    assert f"port {port}" in done.stderr


async def test_a_second_server_on_the_grpc_port_does_not_start(server: RunningServer) -> None:
    """Both ports are bound or neither: with the gRPC port taken it names that one and serves no HTTP either."""
    grpc_port = int(server.grpc.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done, _ = await asyncio.to_thread(_start_on, port, grpc_port)
    assert done.returncode == 1
    assert re.fullmatch(rf"Error: Cannot listen on 127\.0\.0\.1 port {grpc_port}: .*--grpc-port.*\n", done.stderr)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    async with calling(server, "grpc") as caller:
        answers = await asyncio.gather(*(caller.send("one", value) for value in range(200)))
    assert [rows_of(answer) for answer in answers] == [[[value]] for value in range(200)]


def test_a_port_is_free_again_at_once(start_server: StartServer) -> None:
    """A server that has ended, with connections of its own still closing, leaves its port to the next."""
    first = start_server("models = {}", ready=False)
    assert first.client.get("/livez").status_code == 200
    ports = {"--port": first.url.rpartition(":")[2], "--grpc-port": first.grpc.rpartition(":")[2]}
    assert first.stop() == 0
    second = start_server("models = {}", ready=False, flags=tuple(part for port in ports.items() for part in port))
    assert (second.url, second.grpc) == (first.url, first.grpc)
    assert second.client.get("/livez").status_code == 200
    assert second.stop() == 0


async def test_workers_made_after_a_warm_up_serve(server: RunningServer) -> None:
    """A worker that is forked after calls were served answers like the first ones: 200 of 200."""
    async with calling(server) as caller:
        assert rows_of(await caller.send("one", 1)) == [[1]]
        first = set(server.workers())
        for worker in first:
            worker.kill()
        idle = 'paddlewheel_workers{pool="default",state="idle"}'

        async def look() -> bool:
            return first.isdisjoint(server.workers()) and await asyncio.to_thread(server.metric, idle) == 2

        await eventually(look, bool, 30, "two new workers")
        answers = await asyncio.gather(*(caller.send("one", value) for value in range(200)))
    assert [rows_of(answer) for answer in answers] == [[[value]] for value in range(200)]
