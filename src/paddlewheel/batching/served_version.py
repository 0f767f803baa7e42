"""One version of a model as it is served: its queue, its pace, and what its requests cost so far."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from paddlewheel.batching.pace import Pace
from paddlewheel.batching.request_queue import QueuedRequest, RequestQueue
from paddlewheel.batching.statistics import VersionStatistics
from paddlewheel.config import Batching
from paddlewheel.inference import InferenceRequest, Signature
from paddlewheel.pipelines.spec import ModelSpec
from paddlewheel.workers import ModelState


@dataclass(slots=True, eq=False)
class ServedVersion:
    """A version of a model in a pool."""

    state: ModelState
    batching: Batching
    queue: RequestQueue = field(init=False)
    statistics: VersionStatistics = field(init=False)
    pace: Pace = field(default_factory=Pace)
    running: int = 0
    """Requests that are in workers."""
    _of: Signature | None = None
    _has_rows: bool = False

    def __post_init__(self) -> None:
        self.queue = RequestQueue(
            self.spec.name, max_size=self.batching.max_queue_size, priority_levels=self.batching.priority_levels
        )
        self.statistics = VersionStatistics(self.spec.name, self.spec.version)

    @property
    def spec(self) -> ModelSpec:
        """What its workers loaded."""
        return self.state.spec

    @property
    def signature(self) -> Signature:
        """What it takes and returns; empty before it is loaded."""
        return self.state.signature

    @property
    def labels(self) -> tuple[str, str]:
        """The labels of its metrics: model and version."""
        return self.spec.name, self.spec.version

    @property
    def has_rows(self) -> bool:
        """Whether the first dimension of its tensors counts rows (looked up once for a signature)."""
        if self._of is not self.signature:
            self._of, self._has_rows = self.signature, self.spec.has_rows(self.signature)
        return self._has_rows

    @property
    def is_batched(self) -> bool:
        """Whether rows of several requests go through it together; of tensors only where the network allows it."""
        return self.spec.pipeline != "tensor" or self.has_rows

    @property
    def max_batch_size(self) -> int:
        """The most rows of a batch."""
        return max(self.spec.max_batch_size, 1) if self.is_batched else 1

    def bucket_of(self, request: InferenceRequest) -> Hashable:
        """Return the bucket of `request`, a property of the request alone: only those of one bucket share a batch.

        Tensors share one if they can be put together along axis 0: same datatypes and, once padded, other dimensions.
        Pictures always can: the OCR pipeline puts their lines together by width itself.
        """
        if self.spec.pipeline != "tensor":
            return None
        padding = self.spec.padding
        shapes = [
            (each.name, padding[each.name].padded(each.shape) if each.name in padding else each.shape)
            for each in request.inputs
        ]
        return tuple(sorted((name, shape[1:]) for name, shape in shapes))

    def rows_of(self, request: InferenceRequest) -> int:
        """Return how many rows of a batch `request` takes: the first dimension of its tensors; one for a picture."""
        return request.inputs[0].shape[0] if self.has_rows else 1

    def ready_at(self, head: QueuedRequest) -> float:
        """Return the instant from which a batch that starts with `head` may run; the past if it may now."""
        delay_s = self.batching.max_queue_delay_microseconds / 1e6
        enough = self.batching.preferred_batch_size or self.max_batch_size
        if delay_s == 0 or self.queue.waiting_like(head, enough) >= enough:
            return head.enqueued_at
        return head.enqueued_at + delay_s
