"""What a worker must know to build one version's pipeline: plain data, resolved once by the front process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddlewheel.engines import ModelFiles
from paddlewheel.inference import Signature


@dataclass(frozen=True, slots=True)
class Filling:
    """A tensor that is made up for warm-up: each element is `value`, or random between 0 and 1."""

    shape: tuple[int, ...]
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Padding:
    """How an input may be padded so that its shape becomes a usual one: at the end of `axes`, with `value`."""

    axes: tuple[int, ...]
    multiple: int
    value: float = 0.0

    def padded(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return `shape` with each of the axes rounded up to a multiple."""
        return tuple(
            -(-side // self.multiple) * self.multiple if axis in self.axes else side for axis, side in enumerate(shape)
        )


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One version of a model, ready to be loaded by any worker of its pool.

    `engine` is a real engine's name (never ``auto``). Its networks are those of the `pack` in `folder`, or the one of
    `files`; the echo engine reads none. `threads` are the counts that batches may ask for, the usual one first.
    `labels` are the names of its classes, by index. A `max_batch_size` of 0 says that the first dimension of its
    tensors does not count rows. `generation` tells apart what was loaded under one version at different times.
    """

    name: str
    version: str
    pipeline: str
    engine: str
    generation: int = 0
    pack: str | None = None
    folder: Path | None = None
    files: ModelFiles | None = None
    device: str = "cpu"
    precision: str = "auto"
    threads: tuple[int, ...] = (1,)
    max_pixels: int = 50_000_000
    max_batch_size: int = 1
    warm_up: tuple[Mapping[str, Filling], ...] = ()
    padding: Mapping[str, Padding] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    engine_logs: bool = False

    def has_rows(self, signature: Signature) -> bool:
        """Tell whether the first dimension of its tensors counts rows, which are batched and may be split."""
        return self.pipeline == "tensor" and self.max_batch_size > 0 and signature.batches

    @property
    def key(self) -> str:
        """What workers know it by."""
        return f"{self.name}/{self.version}/{self.generation}"
