"""What the requests to one version of a model cost, in the terms of the protocol's statistics extension."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field

_NS_PER_S = 1_000_000_000


@dataclass(slots=True)
class Duration:
    """How often something happened, and how long it took in all."""

    count: int = 0
    ns: int = 0

    def add(self, seconds: float, count: int = 1) -> None:
        """Take in that it happened `count` times, for `seconds` in all."""
        self.count += count
        self.ns += round(seconds * _NS_PER_S)


@dataclass(slots=True)
class VersionStatistics:
    """Requests by outcome, and the batches that ran for them.

    Inferences are rows: a request of eight rows counts as eight. Executions are batches.
    """

    name: str
    version: str
    last_inference_ms: int = 0
    """Milliseconds since 1970."""
    inference_count: int = 0
    execution_count: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    batches: defaultdict[int, Duration] = field(default_factory=lambda: defaultdict(Duration))
    """How long batches ran, by their rows."""

    def record_batch(self, requests: int, rows: int, input_s: float, run_s: float, output_s: float) -> None:
        """Take in a batch that ran, and its times in seconds."""
        self.last_inference_ms = time.time_ns() // 1_000_000
        self.inference_count += rows
        self.execution_count += 1
        self.compute_input.add(input_s * requests, requests)
        self.compute_infer.add(run_s * requests, requests)
        self.compute_output.add(output_s * requests, requests)
        self.batches[rows].add(run_s)
