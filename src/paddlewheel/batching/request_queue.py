"""Where the requests of one model wait: bounded, by priority, first in first out within a priority.

When callers keep leaving without an answer, because they hang up or their deadlines pass, the newest of a priority goes
first until nothing waits any more: the oldest are about to leave as well, and to begin with them would serve nobody
("adaptive LIFO", Maurer, Fail at Scale, ACM Queue 13(8), 2015).

A queued request owns the future of its answer. Whoever waits for that future may leave at any time, by cancelling it:
the request is then taken out at once if it still waits, and the worker is told if it runs. Nothing here knows workers
or starts work.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

import msgspec

from paddlewheel.errors import InvalidArgumentError, ResourceExhaustedError
from paddlewheel.inference import HIGHEST_PRIORITY, Answer, InferenceRequest

_SMOOTHING = 0.1
_MOST_LOST = 0.3


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """A request, from admission to its answer."""

    request: InferenceRequest
    bucket: Hashable
    """Only requests of one bucket share a batch."""
    enqueued_at: float
    """On the monotonic clock, in seconds."""
    answer: asyncio.Future[Answer]
    rows: int = 1
    """Its share of the largest batch."""
    dispatched_at: float | None = None
    alone: bool = False
    """Whether it must not share a batch: one that it was part of has failed as a whole."""
    _leave: Callable[[], None] | None = field(default=None)

    def __post_init__(self) -> None:
        self.answer.add_done_callback(self._answered)

    def on_leave(self, leave: Callable[[], None]) -> None:
        """Choose what :meth:`leave` does: the queue and the scheduler hand the request on with this."""
        self._leave = leave

    def leave(self) -> None:
        """Nobody waits for the answer any more."""
        if not self.answer.done():
            self.answer.cancel()
            self._left()

    def _answered(self, answer: asyncio.Future[Answer]) -> None:
        if answer.cancelled():
            self._left()

    def _left(self) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()


class RequestQueue:
    """The waiting requests of one model."""

    def __init__(self, model: str, *, max_size: int, priority_levels: int) -> None:
        self.model = model
        self.max_size = max_size
        self._levels: list[OrderedDict[QueuedRequest, None]] = [OrderedDict() for _ in range(priority_levels)]
        self.overloaded = False
        """Whether callers kept leaving without an answer, and requests have been waiting ever since."""
        self._lost = 0.0

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return sum(map(len, self._levels))

    def check_room(self, count: int, retry_after_s: float) -> None:
        """Raise :class:`ResourceExhaustedError` with `retry_after_s` unless `count` more requests fit."""
        waiting = len(self)
        if waiting + count > self.max_size:
            lacking = (
                "is full" if count == 1 else f"of {self.max_size} places has no room for the request's {count} parts"
            )
            raise ResourceExhaustedError(
                f"The queue of model '{self.model}' {lacking} ({waiting} waiting).", retry_after_s=retry_after_s
            )

    def put(self, queued: QueuedRequest) -> None:
        """Admit a request for which there is room; raises :class:`InvalidArgumentError` about its priority."""
        level = self._level(queued)
        level[queued] = None
        queued.on_leave(lambda: self.remove(queued))
        queued.answer.add_done_callback(self._count)

    def put_back(self, queued: QueuedRequest) -> None:
        """Put a request that was taken back to the front of its priority; the bound is for newcomers."""
        level = self._level(queued)
        level[queued] = None
        level.move_to_end(queued, last=False)
        queued.on_leave(lambda: self.remove(queued))

    def promote(self, queued: QueuedRequest) -> None:
        """Let a request that waits here go with those of the highest priority, behind those that are there."""
        level = self._level(queued)
        if queued in level:
            del level[queued]
            queued.request = msgspec.structs.replace(queued.request, priority=HIGHEST_PRIORITY)
            self._level(queued)[queued] = None

    def remove(self, queued: QueuedRequest) -> None:
        """Take out a request that nobody waits for, if it is still here."""
        self._level(queued).pop(queued, None)
        self.overloaded = self.overloaded and len(self) > 0

    def head(self) -> QueuedRequest | None:
        """Return the request that is next, of the highest priority."""
        return next(self._in_order(), None)

    def take(self, limit: int, now: float) -> list[QueuedRequest]:
        """Take the next batch: the head, and in order those of its bucket that fit into `limit` rows with it.

        None is passed over for a smaller one behind it. Requests whose deadline has passed, or whose caller has left,
        are dropped on the way.
        """
        batch: list[QueuedRequest] = []
        for queued in list(self._in_order()):
            if _unwanted(queued, now):
                self.remove(queued)
            elif not batch or _may_share(batch[0], queued):
                limit -= queued.rows
                if batch and limit < 0:
                    return batch
                self.remove(queued)
                batch.append(queued)
        return batch

    def waiting_like(self, head: QueuedRequest, limit: int) -> int:
        """Return how many rows, up to `limit`, a batch that starts with `head` could have now."""
        rows = 0
        for queued in self._in_order():
            rows += queued.rows if queued is head or _may_share(head, queued) else 0
            if rows >= limit:
                return limit
        return rows

    def _in_order(self) -> Iterator[QueuedRequest]:
        """Yield what waits, first what is next; under overload too, what was put back comes before the others."""
        for level in self._levels:
            if self.overloaded:
                newest_first = list(reversed(level))
                yield from (queued for queued in newest_first if queued.alone)
                yield from (queued for queued in newest_first if not queued.alone)
            else:
                yield from level

    def _count(self, answer: asyncio.Future[Answer]) -> None:
        """Take in how a request ended: with an answer or an error, or because its caller left."""
        self._lost += _SMOOTHING * (answer.cancelled() - self._lost)
        if self._lost > _MOST_LOST:
            self.overloaded = len(self) > 0
            self._lost = 0.0

    def _level(self, queued: QueuedRequest) -> OrderedDict[QueuedRequest, None]:
        priority = queued.request.priority
        if not HIGHEST_PRIORITY <= priority <= len(self._levels):
            raise InvalidArgumentError(
                f"Priority {priority} is out of range for model '{self.model}'; expected {HIGHEST_PRIORITY} (highest) "
                f"to {len(self._levels)}."
            )
        return self._levels[priority - HIGHEST_PRIORITY]


def _unwanted(queued: QueuedRequest, now: float) -> bool:
    deadline = queued.request.deadline
    return queued.answer.done() or (deadline is not None and deadline <= now)


def _may_share(head: QueuedRequest, other: QueuedRequest) -> bool:
    return not (head.alone or other.alone) and head.bucket == other.bucket
