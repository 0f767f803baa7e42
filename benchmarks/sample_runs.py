"""Runs a reader over sample pictures and measures it. Imports nothing that is not in the standard library."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Read = Callable[[Path], list[str]]
Results = dict[str, dict[str, Any]]


def measured(read: Read, samples: Path, runs: int) -> Results:
    """Return for each sample its lines, and the median milliseconds of processor and wall time."""
    results: Results = {}
    for name in json.loads((samples / "truth.json").read_text("utf-8")):
        lines, cpu, wall = read(samples / name), [], []
        for _ in range(runs):
            began = time.process_time(), time.perf_counter()
            lines = read(samples / name)
            cpu.append((time.process_time() - began[0]) * 1000)
            wall.append((time.perf_counter() - began[1]) * 1000)
        results[name] = {"lines": lines, "cpu_ms": statistics.median(cpu), "wall_ms": statistics.median(wall)}
    return results
