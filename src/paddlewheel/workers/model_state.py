"""How one version of a model stands in a pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import structlog

from paddlewheel.errors import ModelLoadError, PaddlewheelError
from paddlewheel.inference import Signature
from paddlewheel.pipelines.spec import ModelSpec
from paddlewheel.workers.process import WorkerEndedError

_MOST_LOAD_CRASHES = 2
_UNKNOWN = Signature((), ())

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class ModelState:
    """A version of a model in a pool; what it takes and returns is known once it is ready."""

    spec: ModelSpec
    status: Literal["loading", "ready", "failed"] = "loading"
    description: dict[str, str] = field(default_factory=dict)
    signature: Signature = _UNKNOWN
    error: PaddlewheelError | None = None
    load_crashes: int = 0

    def crashed(self, error: WorkerEndedError) -> None:
        """Take in that a worker ended while it loaded the model; it is left out when that happens again."""
        self.load_crashes += 1
        if self.load_crashes >= _MOST_LOAD_CRASHES and self.status == "loading":
            origin = self.spec.files.model if self.spec.files else self.spec.folder
            detail = f"Loading model '{self.spec.name}' from {origin} ends the worker process"
            self.fail(ModelLoadError(f"{detail} ({error}); its files are probably damaged."))

    def fail(self, error: PaddlewheelError) -> None:
        """Leave the model out from now on."""
        self.status, self.error = "failed", error
        _log.error("model cannot be served", model=self.spec.name, version=self.spec.version, reason=error.detail)
