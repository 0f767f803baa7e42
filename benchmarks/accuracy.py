"""Lines read and processor time, against RapidOCR with the same weights.

    python benchmarks/accuracy.py [--samples FOLDER] [--pack NAME] [--threads N] [--rapidocr PYTHON]

FOLDER holds pictures and ``truth.json`` (file name -> lines without spaces, in reading order). RapidOCR depends on
another build of OpenCV, so it runs in an environment of its own: PYTHON is the interpreter there (with rapidocr
and openvino). Processor time counts all threads, so it can be compared while other programs run. Exit status 1 means
that RapidOCR reads a line which we do not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from paddlewheel.catalog import PACKS, pull
from paddlewheel.engines import LoadOptions
from paddlewheel.inference import Answer, Tensor
from paddlewheel.pipelines.ocr.loading import load_ocr
from paddlewheel.pipelines.pipeline import Item
from sample_runs import Read, Results, measured

REPOSITORY = Path(__file__).resolve().parent.parent


def paddlewheel_reader(pack: str, models_dir: Path, threads: int) -> Read:
    """Return a function that reads a file with the OCR pipeline."""
    options = LoadOptions(threads=(threads,))
    pipeline = load_ocr(pull(PACKS[pack], models_dir), "openvino", options, defaults={}, max_pixels=50_000_000)

    def read(file: Path) -> list[str]:
        (outcome,) = pipeline.run([Item(file.name, (Tensor.from_elements("image", [file.read_bytes()]),))])
        if not isinstance(outcome, Answer):
            raise outcome
        return outcome.output("text").strings()

    return read


def rapidocr_results(python: str, samples: Path, folder: Path, runs: int) -> Results:
    """Return what RapidOCR reads and takes, measured in its own environment."""
    command = [python, REPOSITORY / "benchmarks" / "rapidocr_lines.py", samples, folder, str(runs)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    results: Results = json.loads(done.stdout.splitlines()[-1])
    return results


def exact(lines: list[str], truth: list[str]) -> set[int]:
    """Return the indices of the lines of `truth` that were read without a fault, each by a line of its own."""
    left = [line.replace(" ", "") for line in lines]
    found = set()
    for index, line in enumerate(truth):
        if line in left:
            left.remove(line)
            found.add(index)
    return found


def report(ours: Results, theirs: Results | None, truth: dict[str, list[str]]) -> bool:
    """Print the table; return whether we read at least all that RapidOCR reads."""
    print(f"{'':18}{'lines':>6} |{'exact':>6}{'boxes':>6}{'CPU ms':>8}{'wall ms':>8} |", end="")
    print(f"{'exact':>6}{'boxes':>6}{'CPU ms':>8}{'wall ms':>8} | CPU ratio, lines that only RapidOCR reads")
    good = True
    for name, lines in truth.items():
        ran = ours[name]
        mine = exact(ran["lines"], lines)
        row = f"{name:18}{len(lines):6} |{len(mine):6}{len(ran['lines']):6}{ran['cpu_ms']:8.0f}{ran['wall_ms']:8.0f} |"
        if theirs is not None:
            other = theirs[name]
            missed = exact(other["lines"], lines) - mine
            good = good and not missed
            row += f"{len(exact(other['lines'], lines)):6}{len(other['lines']):6}"
            row += f"{other['cpu_ms']:8.0f}{other['wall_ms']:8.0f} | {other['cpu_ms'] / ran['cpu_ms']:.1f}x "
            row += " ".join(lines[index] for index in sorted(missed))
        print(row)
    return good


def main() -> int:
    """Measure and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=Path, default=REPOSITORY / "tests" / "samples")
    parser.add_argument("--pack", default="ppocrv6-small")
    models_dir = Path(os.environ.get("PADDLEWHEEL_MODELS_DIR") or REPOSITORY / ".models")
    parser.add_argument("--models-dir", type=Path, default=models_dir)
    parser.add_argument("--threads", type=int, default=1, help="of paddlewheel; RapidOCR takes all cores")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rapidocr", metavar="PYTHON", help="interpreter of an environment with rapidocr and openvino")
    arguments = parser.parse_args()
    read = paddlewheel_reader(arguments.pack, arguments.models_dir, arguments.threads)
    ours, theirs = measured(read, arguments.samples, arguments.runs), None
    if arguments.rapidocr:
        folder = arguments.models_dir / arguments.pack
        theirs = rapidocr_results(arguments.rapidocr, arguments.samples, folder, arguments.runs)
    truth = json.loads((arguments.samples / "truth.json").read_text("utf-8"))
    return 0 if report(ours, theirs, truth) else 1


if __name__ == "__main__":
    sys.exit(main())
