"""Runs the benchmarks that are named, or all: ``python -m benchmarks [NAME...]`` (see README.md beside this file)."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import ocr, pressure, tensor

RESULTS = Path(__file__).parent / "results"
REPORTS: dict[str, Callable[[Any], str]] = {"ocr": ocr.report, "tensor": tensor.report}
NAMES = ("ocr", "overload", "kill", "shapes", "start", "submit", "tensor")


def main() -> None:
    """Run, print and keep the results."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(NAMES)}; all by default")
    parser.add_argument("--rapidocr", type=Path, help="interpreter of an environment with RapidOCR; else one is made")
    parser.add_argument("--rounds", type=int, default=3, help="rounds whose median is taken")
    parser.add_argument("--seconds", type=float, default=4.0, help="of one measurement in a round")
    parser.add_argument("--overload-seconds", type=float, default=60.0)
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    models = Path(os.environ["PADDLEWHEEL_MODELS_DIR"])
    runs: dict[str, Callable[[], Any]] = {
        "ocr": lambda: ocr.run(models, options.rapidocr, options.rounds, options.seconds),
        "overload": lambda: pressure.overload(options.overload_seconds),
        "kill": pressure.kill,
        "shapes": lambda: pressure.shapes(400),
        "start": lambda: pressure.start(options.rounds),
        "submit": lambda: pressure.submit(options.seconds * 3),
        "tensor": lambda: tensor.run(options.rounds, options.seconds),
    }
    RESULTS.mkdir(exist_ok=True)
    for name in options.names or NAMES:
        print(f"\n## {name}, load average {os.getloadavg()[0]:.1f}\n", flush=True)
        results = runs[name]()
        report = REPORTS.get(name)
        print(report(results) if report else json.dumps(results, indent=1), flush=True)
        (RESULTS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
