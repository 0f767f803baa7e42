"""What a worker must know to build one model's pipeline: plain data, resolved once by the front process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model, ready to be loaded by any worker of its pool.

    `engine` is a real engine's name (never ``auto``). `folder` holds the files of the pack called `version`; the echo
    engine reads none. `threads` are the counts that batches may ask for, the usual one first.
    """

    name: str
    version: str
    pipeline: str
    engine: str
    folder: str | None = None
    device: str = "cpu"
    precision: str = "auto"
    threads: tuple[int, ...] = (1,)
    max_pixels: int = 50_000_000
    options: Mapping[str, Any] = field(default_factory=dict)
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    engine_logs: bool = False
