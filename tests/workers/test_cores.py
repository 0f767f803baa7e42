from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddlewheel.config import PoolSettings
from paddlewheel.workers.cores import available_cores, thread_counts, worker_count


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", None), ("100000 100000", 1), ("30000 100000", 1), ("nonsense", None)],
)
def test_the_quota_of_a_container_counts(tmp_path: Path, quota: str, cores: int | None) -> None:
    """A quota below the affinity mask is what there is, at least one core; without one, the mask."""
    file = tmp_path / "cpu.max"
    file.write_text(f"{quota}\n")
    assert available_cores(file) == (cores or len(os.sched_getaffinity(0)))


def test_without_a_quota_file(tmp_path: Path) -> None:
    """Without cgroups the affinity mask holds."""
    assert available_cores(tmp_path / "none") == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("settings", "cores", "workers", "threads"),
    [
        ({}, 8, 8, (1, 8)),
        ({"workers": 2}, 8, 2, (4, 8)),
        ({"workers": 16}, 8, 16, (1, 8)),
        ({"workers": 1}, 8, 1, (8,)),
        ({"threads": 3}, 8, 8, (3, 8)),
        ({"elastic_threads": False}, 8, 8, (1,)),
        ({}, 1, 1, (1,)),
        ({"device": "gpu:0"}, 8, 1, (8,)),
        ({"device": "gpu:0", "workers": 2}, 8, 2, (4,)),
    ],
)
def test_cores_are_shared_out(settings: dict[str, object], cores: int, workers: int, threads: tuple[int, ...]) -> None:
    """Workers share the cores; alone, one may have them all, unless that is switched off or the device is a GPU."""
    pool = PoolSettings.model_validate(settings)
    assert worker_count(pool, cores) == workers
    assert thread_counts(pool, cores) == threads
