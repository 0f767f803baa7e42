"""What clients may know about the models: the repository's index and the description of a version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paddlewheel.config import Batching
from paddlewheel.inference import Signature
from paddlewheel.pipelines import ModelSpec

State = Literal["READY", "LOADING", "UNLOADING", "UNAVAILABLE"]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """How a version of a model stands; `version` is empty where none was found."""

    name: str
    version: str
    state: State
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A version of a model that is loaded, and the versions beside it."""

    name: str
    version: str
    versions: tuple[str, ...]
    signature: Signature
    spec: ModelSpec
    batching: Batching
    max_batch_size: int

    @property
    def platform(self) -> str:
        """What runs it: engine and pipeline."""
        return f"{self.spec.engine}_{self.spec.pipeline}"
