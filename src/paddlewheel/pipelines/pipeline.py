"""The protocol between a worker and the code around predictors.

A pipeline lives in one worker process. It takes the items of a batch and returns one outcome for each, in order: an
answer, or the item's own error. An exception that leaves :meth:`Pipeline.run` fails the batch; the worker then tries
the items one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from paddlewheel.errors import CancelledByCallerError, DeadlineExceededError, PaddlewheelError
from paddlewheel.inference import Answer, Signature, Tensor

Outcome = Answer | PaddlewheelError


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Item:
    """One request in a worker. Its tensors lie in shared memory that is valid until the batch is answered."""

    request_id: str
    inputs: tuple[Tensor, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    deadline: float | None = None
    abandoned: Callable[[], bool] = _never

    def check_wanted(self) -> None:
        """Raise if nobody waits for this item any more; pipelines call it between stages."""
        if self.abandoned():
            raise CancelledByCallerError("The caller left while the request was running.")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise DeadlineExceededError("The deadline passed while the request was running.")


class Pipeline(Protocol):
    """The code around one model's predictors."""

    @property
    def signature(self) -> Signature:
        """What requests hold and what answers hold."""
        ...

    def describe(self) -> dict[str, str]:
        """Return what `models show` and the start-up summary print: engine, precision, device."""
        ...

    def warm_up(self, thread_counts: Sequence[int]) -> None:
        """Run the networks for usual shapes: a shape is prepared once, and for each thread count that comes to use it.

        The last of `thread_counts` is the one that a call gets when it is alone.
        """
        ...

    def sample(self) -> tuple[Tensor, ...]:
        """Return inputs such as a caller sends, to rehearse a call with; none if it is not known what they hold."""
        ...

    def run(self, batch: Sequence[Item], threads: int | None = None) -> list[Outcome]:
        """Return an outcome for each item of `batch`, in order; `threads` is handed to the predictors."""
        ...
