"""The entry point: signals from the first moment on, and the launcher at the root."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def start(*command: str) -> subprocess.Popen[bytes]:
    """Start a Python program at the root of the repository."""
    return subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def catches(process: subprocess.Popen[bytes], number: int) -> bool:
    """Return whether `process` has a handler for the signal `number` (Linux keeps a mask of them)."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (mask,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(mask >> (number - 1) & 1)


@pytest.mark.parametrize(
    ("command", "number", "status"),
    [
        (("serve", "--port", "0", "--grpc-port", "0"), signal.SIGTERM, 0),
        (("serve", "--port", "0", "--grpc-port", "0"), signal.SIGINT, 0),
        (("models", "list"), signal.SIGTERM, 143),
    ],
)
def test_a_signal_during_the_imports_ends_the_process(command: tuple[str, ...], number: int, status: int) -> None:
    """A server told to stop while it still imports leaves at once with 0; any other command with its signal."""
    with start("-m", "paddlewheel", *command) as process:
        while process.poll() is None and not catches(process, signal.SIGTERM):
            os.sched_yield()
        os.kill(process.pid, number)
        output, _ = process.communicate(timeout=5)
    assert process.returncode == status
    assert b"Traceback" not in output


def test_the_launcher_at_the_root_is_the_serve_command() -> None:
    """`python server.py` takes the flags of `paddlewheel serve`."""
    pages = []
    for command in (["server.py"], ["-m", "paddlewheel", "serve"]):
        with start(*command, "--help") as process:
            output, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        pages.append([line for line in output.decode().splitlines() if "Usage:" not in line])
    assert pages[0] == pages[1]
