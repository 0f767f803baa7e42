"""A job and its states; pure: no clock, no store.

    queued ──▶ running ──▶ succeeded | failed | cancelled ──▶ expired
       ▲          │
       └──────────┘  after an error that a retry can help, or when whoever ran it is lost

Whoever runs a job holds a lease on it, renewed while the work goes on. Each claim has a number of its own, the fence: a
late finisher, whose lease passed to somebody else, is told by it and changes nothing. Instants are seconds since 1970.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from paddlewheel.errors import DeadlineExceededError, ErrorRecord, PaddlewheelError

Status = Literal["queued", "running", "succeeded", "failed", "cancelled", "expired"]
FINISHED: Final = ("succeeded", "failed", "cancelled")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """An asynchronous call; what it was called with and what came of it are kept beside it, by its id."""

    id: str
    model: str
    created_at: float
    status: Status = "queued"
    priority: int = 1
    ttl_s: float = 3600.0
    """How long a result can be fetched."""
    deadline: float
    """When it must be done."""
    max_attempts: int = 3
    attempts: int = 0
    not_before: float = 0.0
    """When it may be tried (again)."""
    fence: int = 0
    """The number of its latest claim."""
    lease_until: float = 0.0
    started_at: float | None = None
    completed_at: float | None = None
    expires_at: float | None = None
    done: int = 0
    total: int = 1
    error: ErrorRecord | None = None
    metadata: Mapping[str, Any] = {}
    key: str | None = None
    """The caller's idempotency key: a second job with it is not made, as long as this one is known."""
    digest: bytes = b""
    """Of what it was called with: the same key must come with the same."""

    @property
    def finished(self) -> bool:
        """Whether nothing becomes of it any more."""
        return self.status in FINISHED or self.status == "expired"

    def holds(self, fence: int) -> bool:
        """Tell whether the claim with this number is the latest, and the job still runs."""
        return self.status == "running" and self.fence == fence

    @property
    def due_at(self) -> float | None:
        """From when on it can be taken up: when it may be tried, or when whoever runs it has lost it."""
        return {"queued": self.not_before, "running": self.lease_until}.get(self.status)

    def due(self, now: float) -> bool:
        """Tell whether it can be taken up."""
        return self.due_at is not None and self.due_at <= now

    @property
    def late_at(self) -> float | None:
        """When it is too late to begin, if it waits."""
        return self.deadline if self.status == "queued" else None

    def late(self, now: float) -> Job:
        """Return the job after its deadline has passed while it waited."""
        return self.failed(DeadlineExceededError("The deadline passed while the job was queued."), now)

    def past(self, now: float) -> bool:
        """Tell whether its time to live has passed."""
        return self.expires_at is not None and self.expires_at <= now

    def claimed(self, now: float, lease_s: float) -> Job:
        """Return the job after somebody has taken it up."""
        return msgspec.structs.replace(
            self,
            status="running",
            attempts=self.attempts + 1,
            fence=self.fence + 1,
            lease_until=now + lease_s,
            started_at=self.started_at if self.started_at is not None else now,
        )

    def renewed(self, until: float) -> Job:
        """Return the job with a longer lease."""
        return msgspec.structs.replace(self, lease_until=until)

    def retried(self, error: PaddlewheelError, not_before: float) -> Job:
        """Return the job, to be tried again from `not_before` on, with the error of this attempt."""
        return msgspec.structs.replace(
            self, status="queued", not_before=not_before, lease_until=0.0, error=error.record()
        )

    def given_back(self, not_before: float = 0.0) -> Job:
        """Return the job, to be tried from `not_before` on, with the latest attempt not counted."""
        return msgspec.structs.replace(
            self, status="queued", attempts=self.attempts - 1, not_before=not_before, lease_until=0.0
        )

    def succeeded(self, now: float) -> Job:
        """Return the job with its work done."""
        return self._finished("succeeded", now, None)

    def failed(self, error: PaddlewheelError, now: float) -> Job:
        """Return the job with the error that ended it."""
        return self._finished("failed", now, error.record())

    def cancelled(self, now: float) -> Job:
        """Return the job after its caller has given it up."""
        return self._finished("cancelled", now, self.error)

    def again(self, now: float) -> Job:
        """Return a job that failed or was cancelled as it was at first, with as much time as it had then."""
        return msgspec.structs.replace(
            self,
            status="queued",
            deadline=now + self.deadline - self.created_at,
            attempts=0,
            not_before=0.0,
            started_at=None,
            completed_at=None,
            expires_at=None,
            error=None,
        )

    def expired(self) -> Job:
        """Return what is kept of the job past its time to live: that it existed."""
        return msgspec.structs.replace(self, status="expired", error=None, metadata={})

    def _finished(self, status: Status, now: float, error: ErrorRecord | None) -> Job:
        done = self.total if status == "succeeded" else self.done
        return msgspec.structs.replace(
            self, status=status, completed_at=now, expires_at=now + self.ttl_s, lease_until=0.0, error=error, done=done
        )


def new_job_id(now: float) -> str:
    """Return a UUID version 7 (RFC 9562): milliseconds of `now`, then 74 random bits, so unguessable and in order."""
    value = (int(now * 1000) & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))
