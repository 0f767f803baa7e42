"""OCR over HTTP at concurrency 1 and 8: ours, RapidOCR's API server, RapidOCR in a loop, and the limit."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
from benchmarks.load import Send, closed_loop, median, quantile_ms, rate
from benchmarks.processes import ROOT, Server, ours, rapidocr_api, rapidocr_environment

SAMPLES = ROOT / "tests" / "samples"
PICTURES = ("card.jpg", "receipt.jpg", "menu.jpg", "page.png")
PACKS = ("ppocrv6-small", "ppocrv6-tiny")
CONCURRENCIES = (1, 8)
Row = dict[str, Any]


def to_ours(server: Server, picture: bytes) -> Send:
    """Return a call of our route."""
    return lambda http: http.post(f"{server.url}/ocr", files={"image": ("x", picture)})


def to_rapidocr(server: Server, picture: bytes) -> Send:
    """Return a call of RapidOCR's route."""
    return lambda http: http.post(f"{server.url}/ocr", files={"image_file": ("x.jpg", picture)})


def lines_of(response: httpx2.Response) -> list[str]:
    """Return the lines of either server's answer, without spaces."""
    body = response.json()
    texts = [line["text"] for line in body["lines"]] if "lines" in body else [each["rec_txt"] for each in body.values()]
    return [text.replace(" ", "") for text in texts]


def measure(server: Server, call: Callable[[Server, bytes], Send], name: str, clients: int, seconds: float) -> Row:
    """Return one round of one picture."""
    picture = (SAMPLES / name).read_bytes()
    truth = json.loads((SAMPLES / "truth.json").read_text("utf-8"))[name]
    cpu = server.cpu_s()
    samples = asyncio.run(closed_loop(call(server, picture), clients, seconds))
    spent = server.cpu_s() - cpu
    good = [sample for sample in samples if sample.status == 200]
    assert good[0].response is not None
    found = lines_of(good[0].response)
    return {
        "p50_ms": quantile_ms(good, 0.5),
        "p95_ms": quantile_ms(good, 0.95),
        "rate": rate(samples),
        "cpu_s": spent / len(samples),
        "pss_mb": server.pss_mb(),
        "exact": sum(line in found for line in truth),
        "lines": len(truth),
    }


def limits(pack: str, seconds: float) -> dict[str, float]:
    """Return the predictors' own rate for each picture."""
    command = [sys.executable, str(Path(__file__).with_name("limit.py")), pack, str(seconds)]
    done = subprocess.run([*command, *(str(SAMPLES / name) for name in PICTURES)], capture_output=True, check=True)
    return {Path(path).name: share for path, share in json.loads(done.stdout.splitlines()[-1]).items()}


def bare_rapidocr(interpreter: Path, models: Path, runs: int) -> dict[str, float]:
    """Return the median milliseconds of RapidOCR on OpenVINO in a bare loop."""
    script = str(Path(__file__).with_name("rapidocr_lines.py"))
    command = [str(interpreter), script, str(SAMPLES), str(models / "ppocrv6-small"), str(runs)]
    done = subprocess.run(command, capture_output=True, check=True)
    return {name: result["wall_ms"] for name, result in json.loads(done.stdout.splitlines()[-1]).items()}


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure."""
    return {name: median([each[name] for each in rounds]) for name in rounds[0]}


def run(models: Path, rapidocr: Path | None, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure everything in interleaved rounds and return the medians."""
    interpreter = rapidocr_environment(rapidocr)
    collected: dict[tuple[str, str, int], list[Row]] = {}
    limit: dict[str, list[dict[str, float]]] = {pack: [] for pack in PACKS}
    loop: list[dict[str, float]] = []
    with ExitStack() as stack:
        servers = {pack: (stack.enter_context(ours(f"models.ocr.pack={pack}")), to_ours) for pack in PACKS}
        servers["RapidOCR API"] = (stack.enter_context(rapidocr_api(interpreter)), to_rapidocr)
        for server, call in servers.values():
            for picture in PICTURES:
                measure(server, call, picture, 2, 0)
        for _ in range(rounds):
            for picture in PICTURES:
                for clients in CONCURRENCIES:
                    for name, (server, call) in servers.items():
                        row = measure(server, call, picture, clients, seconds)
                        collected.setdefault((name, picture, clients), []).append(row)
            for pack in PACKS:
                limit[pack].append(limits(pack, seconds))
            loop.append(bare_rapidocr(interpreter, models, 2))
    rows = [
        {"server": name, "picture": picture, "clients": clients}
        | {key: median([each[key] for each in found]) for key in found[0]}
        for (name, picture, clients), found in collected.items()
    ]
    return {
        "rows": rows,
        "limit": {pack: medians(found) for pack, found in limit.items()},
        "rapidocr_openvino_loop_ms": medians(loop),
    }


def report(results: dict[str, Any]) -> str:
    """Return the results as Markdown tables."""
    lines = [
        "| picture | server | clients | p50 ms | p95 ms | pictures/s | CPU s | PSS MB | exact lines |",
        "|---" * 9 + "|",
    ]
    index = {(row["picture"], row["server"], row["clients"]): row for row in results["rows"]}
    for (picture, server, clients), row in sorted(index.items()):
        lines.append(
            f"| {picture} | {server} | {clients} | {row['p50_ms']:.0f} | {row['p95_ms']:.0f} | {row['rate']:.2f} | "
            f"{row['cpu_s']:.2f} | {row['pss_mb']:.0f} | {row['exact']:.0f}/{row['lines']:.0f} |"
        )
    lines += [
        "",
        "| picture | small: x RapidOCR API at 8 | small: x RapidOCR-OpenVINO loop | small / limit | tiny / limit |",
    ]
    lines.append("|---" * 5 + "|")
    for picture in PICTURES:
        small, tiny = (index[picture, pack, 8]["rate"] for pack in PACKS)
        theirs = index[picture, "RapidOCR API", 8]["rate"]
        loop = 1000 / results["rapidocr_openvino_loop_ms"][picture]
        shares = [rate_ / results["limit"][pack][picture] for rate_, pack in ((small, PACKS[0]), (tiny, PACKS[1]))]
        lines.append(f"| {picture} | {small / theirs:.1f} | {small / loop:.1f} | {shares[0]:.2f} | {shares[1]:.2f} |")
    return "\n".join(lines)
