"""Fixtures that more than one part of the tests needs: model packs, and real servers in processes of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import psutil
import pytest

from paddlewheel.workers import fork_server
from waiting import wait_for

REPOSITORY = Path(__file__).parent.parent
_START_TIMEOUT_S = 90
# Many servers run at once, and a file is for one: those whose jobs must outlive them say so.
os.environ["PADDLEWHEEL_JOBS__STORE"] = "memory"
_LABEL = re.compile(r'\w+="[^"]*"')


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Return the folder of model packs that the tests share."""
    return Path(os.environ.get("PADDLEWHEEL_MODELS_DIR", REPOSITORY / ".models"))


@pytest.fixture(scope="session")
def forked() -> Iterator[None]:
    """Run the fork server that tests of workers in this process share."""
    with fork_server(["echo"]):
        yield


@dataclass
class RunningServer:
    """A ``paddlewheel serve`` process."""

    process: subprocess.Popen[str]
    url: str
    grpc: str
    """The address of the gRPC port, empty if it has none."""
    log: Path
    client: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        """Open a client with time-outs that no healthy server reaches."""
        self.client = httpx2.Client(base_url=self.url, timeout=60)

    def wait_ready(self, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Wait until /readyz says yes."""
        wait_for(lambda: self.client.get("/readyz").status_code == 200, timeout_s, f"ready: {self.log.read_text()}")

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes: the children of the fork server."""
        server = psutil.Process(self.process.pid)
        ours = set(server.children())
        return [each for each in server.children(recursive=True) if each not in ours]

    def metric(self, series: str) -> float:
        """Return the sum of the series that have this name and, among others, these labels, written as in the text."""
        name, _, labels = series.rstrip("}").partition("{")
        wanted = set(_LABEL.findall(labels))
        found = re.findall(rf"^{re.escape(name)}(?:{{(.*)}})? (\S+)$", self.client.get("/metrics").text, re.MULTILINE)
        return sum(float(value) for given, value in found if wanted <= set(_LABEL.findall(given)))

    def stop(self, timeout_s: float = 40) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


StartServer = Callable[..., RunningServer]


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory, models_dir: Path) -> Iterator[StartServer]:
    """Return a function that starts a server from TOML settings; all are stopped at the end of the session."""
    with ExitStack() as stack:

        def start(toml: str, *, ready: bool = True, flags: tuple[str, ...] = ()) -> RunningServer:
            folder = tmp_path_factory.mktemp("server")
            settings, log = folder / "paddlewheel.toml", folder / "log"
            settings.write_text(f'models_dir = "{models_dir}"\n{toml}')
            ports = ["--port", "0", "--grpc-port", "0"]
            command = [sys.executable, "-m", "paddlewheel", "serve", "--config", str(settings), *ports, *flags]
            with log.open("w") as stderr:
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, text=True)
            stack.callback(_end, process)
            wait_for(
                lambda: re.search(r"http://.*\n", log.read_text()) or process.poll() is not None,
                30,
                "the server's address",
            )
            found = re.search(r"(http://\S+)(?: +grpc (\S+))?\n", log.read_text())
            assert found, log.read_text()
            server = RunningServer(process, found[1], found[2] or "", log)
            stack.callback(server.client.close)
            if ready:
                server.wait_ready()
            return server

        yield start


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
