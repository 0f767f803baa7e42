"""Tensors of three sizes over four protocols, beside a plain servicer: calls a second and medians, in one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from benchmarks.processes import ROOT, free_port, ours

SIZES = {"4 floats": 4, "600 KB": 150_528, "60 MB": 15_000_000}
CLIENTS = (1, 8, 32)
PROTOCOLS = ("json", "binary", "grpc", "predict")
PLAIN = "plain servicer"
LARGEST_JSON = 150_528


def run(rounds: int, seconds: float) -> dict[str, Any]:
    """Return for each size, protocol and number of clients the medians over `rounds`; of the largest, one round."""
    settings = (
        "models.echo.pipeline=tensor",
        "models.echo.engine=echo",
        "models.echo.batching.max_queue_size=1000",
        "models.echo.batching.default_timeout_microseconds=600000000",
    )
    cells: dict[str, list[dict[str, float]]] = {}
    grpc_port = free_port()
    with plain_servicer() as plain, ours(*settings, f"server.grpc_port={grpc_port}") as server:
        http, own_grpc = server.url.removeprefix("http://"), f"127.0.0.1:{grpc_port}"
        targets = {"json": http, "binary": http, "grpc": own_grpc, "predict": own_grpc, PLAIN: plain}
        for number in range(rounds):
            for size, floats in SIZES.items():
                if number and floats > LARGEST_JSON:
                    continue
                for clients in CLIENTS:
                    for name, address in targets.items():
                        if name == "json" and floats > LARGEST_JSON:
                            continue
                        cell = f"{size}, {clients} clients, {name}"
                        cells.setdefault(cell, []).append(measure(name, address, floats, clients, seconds))
    return {
        cell: {key: statistics.median(each[key] for each in found) for key in found[0]} for cell, found in cells.items()
    }


def measure(name: str, address: str, floats: int, clients: int, seconds: float) -> dict[str, float]:
    """Return the rate and the median time of one closed loop; a rate of 0 if a call failed."""
    protocol = "predict" if name == PLAIN else name
    command = [
        sys.executable,
        "-m",
        "benchmarks.tensor_client",
        protocol,
        address,
        str(floats),
        str(clients),
        str(seconds),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}, {floats} floats, {clients} clients: {done.stderr[-500:]}", file=sys.stderr)
        return {"rate": 0.0, "p50_ms": 0.0}
    result: dict[str, float] = json.loads(done.stdout)
    return result


@contextmanager
def plain_servicer() -> Iterator[str]:
    """Run the plain servicer and give its address."""
    address = f"127.0.0.1:{(port := free_port())}"
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.plain_servicer", str(port)], cwd=ROOT)
    try:
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(30)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def report(results: dict[str, Any]) -> str:
    """Return a table: a row for each size and number of clients, a column for each protocol."""
    names = (*PROTOCOLS, PLAIN)
    lines = ["| calls/s (p50 ms) | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for size in SIZES:
        for clients in CLIENTS:
            found = [results.get(f"{size}, {clients} clients, {name}") for name in names]
            row = [_cell(each) for each in found]
            lines.append(f"| {size}, {clients} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def _cell(found: dict[str, float] | None) -> str:
    if found is None:
        return ""
    return f"{found['rate']:,.{1 if found['rate'] < 10 else 0}f} ({found['p50_ms']:,.1f})" if found["rate"] else "fails"
