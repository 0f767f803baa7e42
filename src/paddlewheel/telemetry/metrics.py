"""The metrics of one server, in the Prometheus text format.

Labels come from closed sets only (served models, outcomes, route templates), never from paths or callers, so the
number of series does not grow with traffic.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from paddlewheel import __version__

UNKNOWN: Final = "unknown"
_VERSION: Final = ("model", "version")
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Every metric of the server, on a registry of its own."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        Gauge("paddlewheel_info", "Version of the server.", ["version"], registry=registry).labels(__version__).set(1)
        self.requests = Counter(
            "paddlewheel_requests", "Inference requests, by how they ended.", [*_VERSION, "outcome"], registry=registry
        )
        self.http_seconds = Histogram(
            "http_server_request_duration_seconds",
            "Time from the request's first byte to the last of its answer.",
            ["method", "route", "status"],
            buckets=_SECONDS,
            registry=registry,
        )
        grpc_method = ["grpc_type", "grpc_service", "grpc_method"]
        self.grpc_started = Counter("grpc_server_started", "RPCs that have begun.", grpc_method, registry=registry)
        self.grpc_handled = Counter(
            "grpc_server_handled", "RPCs that are over, by status.", [*grpc_method, "grpc_code"], registry=registry
        )
        self.grpc_seconds = Histogram(
            "grpc_server_handling_seconds", "Time of an RPC.", grpc_method, buckets=_SECONDS, registry=registry
        )
        self.queue_depth = Gauge("paddlewheel_queue_depth", "Waiting requests.", _VERSION, registry=registry)
        self.running = Gauge("paddlewheel_running_requests", "Requests in workers.", _VERSION, registry=registry)
        self.queue_wait_seconds = Histogram(
            "paddlewheel_queue_wait_seconds",
            "Time between admission and a worker.",
            _VERSION,
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_size = Histogram(
            "paddlewheel_batch_size", "Rows in a batch.", _VERSION, buckets=(1, 2, 4, 8, 16, 32), registry=registry
        )
        self.stage_seconds = Histogram(
            "paddlewheel_stage_seconds",
            "Time that a batch spent in a stage of its pipeline.",
            [*_VERSION, "stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.inference_ms = Histogram(
            "paddle_inference_time_ms",
            "Time that a batch ran in its worker.",
            [*_VERSION, "engine"],
            buckets=tuple(seconds * 1000 for seconds in _SECONDS),
            registry=registry,
        )
        self.workers = Gauge("paddlewheel_workers", "Worker processes.", ["pool", "state"], registry=registry)
        self.worker_restarts = Counter(
            "paddlewheel_worker_restarts", "Workers that were replaced.", ["pool", "reason"], registry=registry
        )
        self.worker_rss_bytes = Gauge(
            "paddlewheel_worker_rss_bytes", "Resident memory of all workers of a pool.", ["pool"], registry=registry
        )
        self.jobs = Gauge("paddlewheel_jobs", "Jobs that are kept.", ["status"], registry=registry)

    def render(self) -> bytes:
        """Return all series in the text format."""
        return generate_latest(self._registry)
