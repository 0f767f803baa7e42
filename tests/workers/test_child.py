from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from paddlewheel import pipelines
from paddlewheel.inference import Answer, Signature, Tensor
from paddlewheel.pipelines.pipeline import Item, Outcome
from paddlewheel.workers import child, frames
from paddlewheel.workers.arena import Arena
from workers.conftest import MakeSpec

SAMPLE = np.arange(6, dtype=np.float32).reshape(2, 3)


class NotingPipeline:
    """Notes what it is run with, after a warm-up; fails on it if it should."""

    signature = Signature((), ())

    def __init__(self, *, fails: bool) -> None:
        self.noted: list[object] = []
        self._fails = fails

    def describe(self) -> dict[str, str]:
        """Say nothing."""
        return {}

    def warm_up(self, thread_counts: Sequence[int]) -> None:
        """Note what for."""
        self.noted.append(tuple(thread_counts))

    def sample(self) -> tuple[Tensor, ...]:
        """Return the sample."""
        return (Tensor.from_numpy("x", SAMPLE),)

    def run(self, batch: Sequence[Item], threads: int | None = None) -> list[Outcome]:
        """Note the call, and fail on it if it should."""
        (item,) = batch
        self.noted.append((threads, item.inputs[0].numpy().tolist()))
        if self._fails:
            raise ValueError("it does not like its own sample")
        return [Answer((Tensor.from_numpy("y", SAMPLE),))]


@pytest.mark.parametrize("fails", [False, True])
def test_a_load_ends_with_a_call_to_nobody(spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
    """It goes the whole way for each thread count, and whatever comes of it, the model is loaded."""
    pipeline = NotingPipeline(fails=fails)
    monkeypatch.setattr(pipelines, "build", lambda _: pipeline)
    worker = child._Worker(Arena.create(1 << 20), Arena.create(1 << 20))
    report = worker.obey(frames.Load(replace(spec(), threads=(1, 2))))
    assert isinstance(report, frames.Loaded)
    assert pipeline.noted == [(1, 2), (1, SAMPLE.tolist()), (2, SAMPLE.tolist())]
