"""Servers under measurement: started on a free port, stopped by pid, their processes' time and memory added up."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

ROOT = Path(__file__).parent.parent
_START_S = 120


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    process: psutil.Process
    ready_s: float

    def tree(self) -> list[psutil.Process]:
        """Return its process and all below it."""
        return [self.process, *self.process.children(recursive=True)]

    def cpu_s(self) -> float:
        """Return the processor time of the whole tree so far."""
        return sum(sum(each.cpu_times()[:2]) for each in self.tree() if each.is_running())

    def pss_mb(self) -> float:
        """Return the memory of the whole tree, shared pages shared out."""
        return sum(each.memory_full_info().pss for each in self.tree()) / 1e6

    def workers(self) -> list[psutil.Process]:
        """Return our worker processes: grandchildren, below the fork server."""
        return [each for each in self.tree()[1:] if each.ppid() != self.process.pid]


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(command: Sequence[str], port: int, ready_path: str) -> Iterator[Server]:
    """Run a server until the block ends; its log goes to a temporary file."""
    url = f"http://127.0.0.1:{port}"
    began = time.perf_counter()
    with tempfile.TemporaryFile() as log, httpx2.Client() as client:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
        try:
            while not _answers(client, url + ready_path):
                if process.poll() is not None or time.perf_counter() - began > _START_S:
                    log.seek(0)
                    raise RuntimeError(f"{command[0]} did not start: {log.read().decode()[-2000:]}")
            yield Server(url, psutil.Process(process.pid), time.perf_counter() - began)
        finally:
            process.terminate()
            process.wait(60)


def _answers(client: httpx2.Client, url: str) -> bool:
    try:
        return client.get(url, timeout=5).status_code == 200
    except httpx2.TransportError:
        return False


@contextmanager
def ours(*settings: str) -> Iterator[Server]:
    """Run `paddlewheel serve` with ``--set`` settings, and a job store of its own."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        flags = [flag for setting in (f"jobs.file={folder}/jobs.sqlite", *settings) for flag in ("--set", setting)]
        command = [sys.executable, "-m", "paddlewheel", "serve", "--port", str(port), "--grpc-port", "0", *flags]
        with running(command, port, "/readyz") as server:
            yield server


@contextmanager
def rapidocr_api(interpreter: Path) -> Iterator[Server]:
    """Run RapidOCR's own API server as shipped, from an environment that has it."""
    port = free_port()
    command = [str(interpreter), "-m", "rapidocr_api.main", "--ip", "127.0.0.1", "--port", str(port)]
    with running(command, port, "/") as server:
        yield server


def rapidocr_environment(given: Path | None) -> Path:
    """Return the interpreter of an environment with RapidOCR; one is made beside this file where none is given.

    It is an environment of its own since RapidOCR brings an OpenCV of its own.
    """
    if given is not None:
        return given
    folder = ROOT / "benchmarks" / ".rapidocr"
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        packages = ["rapidocr==3.10.0", "rapidocr-api==0.2.0", "onnxruntime", "openvino"]
        subprocess.run([interpreter, "-m", "pip", "install", "--quiet", *packages], check=True)
    return interpreter
