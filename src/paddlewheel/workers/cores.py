"""How many cores this process may really use, and how a pool shares them out."""

from __future__ import annotations

import os
from pathlib import Path

from paddlewheel.config import PoolSettings

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores(quota_file: Path = _CGROUP_QUOTA) -> int:
    """Return the cores of this process's affinity mask, or of its container's CPU quota where that is less."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = quota_file.read_text("ascii").split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, round(int(quota) / int(period))))


def worker_count(settings: PoolSettings, cores: int) -> int:
    """Return how many workers a pool starts with: on a CPU one a core, on a GPU one, unless the settings say."""
    if settings.workers != "auto":
        return settings.workers
    return cores if settings.device == "cpu" else 1


def thread_counts(settings: PoolSettings, cores: int) -> tuple[int, ...]:
    """Return the thread counts that the workers of a pool load models for, the usual one first.

    Usually the cores are shared out; a request that is alone may use all of them (`elastic_threads`).
    """
    share = settings.threads if settings.threads != "auto" else max(1, cores // worker_count(settings, cores))
    return (share, cores) if settings.elastic_threads and settings.device == "cpu" and share < cores else (share,)
