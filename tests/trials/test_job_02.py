"""JOB-02: whoever runs a job is killed, the server with all of it: every acknowledged job ends with its own answer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from conftest import RunningServer, StartServer
from trials.calls import calling
from trials.numbers import picture_of
from waiting import eventually, wait_for

JOBS = 16
SETTINGS = """
[pool.default]
workers = 1
nice = 0
[models.ocr]
pack = "ppocrv6-tiny"
[jobs]
lease_s = 2
concurrency = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the jobs are kept."""
    return tmp_path / "jobs.sqlite"


def kept_in(file: Path) -> tuple[str, ...]:
    """Return the flags of a server whose jobs are kept in `file`."""
    return ("--set", "jobs.store=sqlite", "--set", f"jobs.file={file}")


async def _submitted(server: RunningServer, numbers: list[str]) -> dict[str, str]:
    """Submit a picture of each number; return the address of each result."""
    async with calling(server) as caller:
        urls = {}
        for number in numbers:
            response = await caller.http.post("/ocr/async", content=picture_of(number))
            assert response.status_code == 202, response.text
            urls[number] = response.json()["status_url"]
        return urls


async def _texts(server: RunningServer, urls: dict[str, str]) -> dict[str, str]:
    """Return what each picture says, once all are read."""
    async with calling(server) as caller:
        texts = {}
        for number, url in urls.items():
            done = await eventually(
                lambda url=url: caller.http.get(url), lambda seen: seen.status_code != 202, 60, f"{number} is read"
            )
            assert done.status_code == 200, done.text
            texts[number] = done.json()["text"]
        return texts


async def test_a_server_that_is_killed_loses_no_job(start_server: StartServer, file: Path) -> None:
    """Killed with its workers while jobs run and wait; the next server on the file ends each one, with its own text."""
    numbers = [str(100_003 * (index + 1)) for index in range(JOBS)]
    first = start_server(SETTINGS, flags=kept_in(file))
    urls = await _submitted(first, numbers)

    async def succeeded() -> float:
        return await asyncio.to_thread(first.metric, 'paddlewheel_jobs{status="succeeded"}')

    before = await eventually(succeeded, lambda count: count >= 2, 30, "the first are done")
    assert before < JOBS
    family = psutil.Process(first.process.pid)
    for process in (*family.children(recursive=True), family):
        process.kill()
    first.process.wait()

    second = start_server(SETTINGS, flags=kept_in(file))
    assert await _texts(second, urls) == {number: number for number in numbers}
    assert second.metric('paddlewheel_jobs{status="succeeded"}') == JOBS
    assert second.stop() == 0


async def test_a_stop_gives_jobs_back(start_server: StartServer, file: Path) -> None:
    """After SIGTERM and its grace period what was not done is in the file, and the next server does it."""
    numbers = [str(200_003 * (index + 1)) for index in range(JOBS)]
    first = start_server(SETTINGS, flags=kept_in(file))
    urls = await _submitted(first, numbers)
    began = time.monotonic()
    assert await asyncio.to_thread(first.stop) == 0
    assert time.monotonic() - began < 10
    second = start_server(SETTINGS, flags=kept_in(file))
    assert await _texts(second, urls) == {number: number for number in numbers}
    assert second.stop() == 0


def test_a_file_is_for_one_server(start_server: StartServer, file: Path) -> None:
    """A second server on the file does not start, and says which file; the first goes on."""
    first = start_server(SETTINGS, flags=kept_in(file))
    command = [sys.executable, "-m", "paddlewheel", "serve", "--port", "0", "--grpc-port", "0", *kept_in(file)]
    done = subprocess.run([*command, "--set", "models={}"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert str(file) in done.stderr
    assert "jobs.file" in done.stderr
    assert "Traceback" not in done.stderr
    wait_for(lambda: first.client.get("/readyz").status_code == 200, 1, "the first is ready")
