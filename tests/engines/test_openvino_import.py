"""What importing OpenVINO does, besides importing it."""

from __future__ import annotations

import subprocess
import sys

_PROBE = """
import sys, threading
from paddlewheel.engines import openvino
openvino.preload()
assert "openvino" in sys.modules
print("openvino_telemetry" in sys.modules, threading.active_count())
"""


def test_import_neither_reports_home_nor_starts_a_thread() -> None:
    """The library's telemetry is left out: nothing is sent, and the fork server stays single-threaded."""
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    assert probe.stdout.split() == ["False", "1"]
