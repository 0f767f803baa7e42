"""The limit: the predictor calls that a picture makes, and nothing around them, in a loop on every core.

    python limit.py PACK SECONDS PICTURE...

One process a core, one thread each. The pipeline runs once to record what it feeds its predictors; the loop replays
that. Prints pictures a second for each picture, as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddlewheel import pipelines, repository
from paddlewheel.config import load_settings
from paddlewheel.inference import Tensor
from paddlewheel.pipelines.ocr.pipeline import OcrPipeline
from paddlewheel.pipelines.pipeline import Item

Call = tuple[Callable[..., Any], dict[str, Any]]


def recorded(pipeline: OcrPipeline, picture: Path) -> list[Call]:
    """Return the predictor calls that `picture` makes, in order."""
    calls: list[Call] = []
    predictors = [pipeline._detection.predictor, pipeline._orientation.predictor, pipeline._recognition.predictor]  # noqa: SLF001  # a look inside, to replay it
    originals = [predictor.run for predictor in predictors]
    for predictor, original in zip(predictors, originals, strict=True):

        def record(inputs: dict[str, Any], threads: int | None = None, run: Callable[..., Any] = original) -> Any:
            calls.append((run, {name: array.copy() for name, array in inputs.items()}))
            return run(inputs, threads)

        predictor.run = record  # type: ignore[method-assign]
    try:
        pipeline.run([Item("limit", (Tensor.from_elements("image", [picture.read_bytes()]),))])
    finally:
        for predictor, original in zip(predictors, originals, strict=True):
            predictor.run = original  # type: ignore[method-assign]
    return calls


def worker(pack: str, seconds: float, pictures: list[str], barrier: Any, results: Any) -> None:
    """Replay each picture's calls for `seconds`, in step with the other processes."""
    settings = load_settings(overrides=[("models.ocr.pack", "limit", pack)]).settings
    pipeline = pipelines.build(replace(repository.resolve("ocr", settings), threads=(1,)))
    assert isinstance(pipeline, OcrPipeline)
    for picture in pictures:
        calls = recorded(pipeline, Path(picture))
        for run, inputs in calls:
            run(inputs)
        barrier.wait()
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            for run, inputs in calls:
                run(inputs)
            done += 1
        results.put((picture, done / (time.perf_counter() - began)))


def main(pack: str, seconds: float, pictures: list[str]) -> None:
    """Run one process a core and print the sums."""
    context = multiprocessing.get_context("spawn")
    cores = len(os.sched_getaffinity(0))
    barrier, results = context.Barrier(cores), context.Queue()
    processes = [context.Process(target=worker, args=(pack, seconds, pictures, barrier, results)) for _ in range(cores)]
    for process in processes:
        process.start()
    rates = dict.fromkeys(pictures, 0.0)
    for _ in range(cores * len(pictures)):
        picture, share = results.get(timeout=600)
        rates[picture] += share
    for process in processes:
        process.join()
    print(json.dumps(rates))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
