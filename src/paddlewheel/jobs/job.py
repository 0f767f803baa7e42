"""A job and its states; pure: no clock, no store.

    queued ──▶ running ──▶ succeeded | failed | cancelled
       └──────────────────────────▲

A finished job can be fetched until `expires_at`. Instants are seconds since the epoch.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, replace
from typing import Literal

from paddlewheel.errors import ErrorRecord, PaddlewheelError
from paddlewheel.inference import InferenceResponse

Status = Literal["queued", "running", "succeeded", "failed", "cancelled", "expired"]


@dataclass(frozen=True, slots=True)
class Job:
    """An asynchronous call; one of `response` and `error` is set once it has finished."""

    id: str
    model: str
    created_at: float
    status: Status = "queued"
    completed_at: float | None = None
    expires_at: float | None = None
    response: InferenceResponse | None = None
    error: ErrorRecord | None = None

    def running(self) -> Job:
        """Return the job after a worker has taken it up."""
        return replace(self, status="running")

    def succeeded(self, response: InferenceResponse, now: float, ttl_s: float) -> Job:
        """Return the job with its answer."""
        return replace(self, status="succeeded", response=response, completed_at=now, expires_at=now + ttl_s)

    def failed(self, error: PaddlewheelError, now: float, ttl_s: float) -> Job:
        """Return the job with the error that ended it."""
        return replace(self, status="failed", error=error.record(), completed_at=now, expires_at=now + ttl_s)

    def expired(self, now: float) -> bool:
        """Tell whether the time to live has passed."""
        return self.expires_at is not None and self.expires_at <= now


def new_job_id(now: float) -> str:
    """Return a UUID version 7 (RFC 9562): milliseconds of `now`, then 74 random bits, so unguessable and in order."""
    value = (int(now * 1000) & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))
