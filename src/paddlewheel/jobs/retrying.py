"""What becomes of a job whose attempt ended with an error; pure, but for the jitter of a back-off."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from paddlewheel.errors import (
    DeadlineExceededError,
    ModelLoadError,
    PaddlewheelError,
    ResourceExhaustedError,
    UnavailableError,
    WorkerCrashedError,
)
from paddlewheel.jobs.job import Job

_FIRST_BACK_OFF_S: Final = 1.0
_LONGEST_BACK_OFF_S: Final = 60.0


def after_error(job: Job, error: PaddlewheelError, now: float) -> Callable[[Job], Job]:
    """Return what becomes of a job whose attempt ended with `error`: it is tried again where that can help."""
    if isinstance(error, ModelLoadError | DeadlineExceededError):
        return partial(Job.failed, error=error, now=now)
    if isinstance(error, ResourceExhaustedError | UnavailableError):
        # There was no room or no model: it was not its attempt that failed.
        again_at = now + (error.retry_after_s or _FIRST_BACK_OFF_S)
        if again_at < job.deadline:
            return partial(Job.given_back, not_before=again_at)
        late = DeadlineExceededError(f"The deadline will have passed before it can be tried again: {error.detail}")
        return partial(Job.failed, error=late, now=now)
    longest_s = min(_FIRST_BACK_OFF_S * 2 ** (job.attempts - 1), _LONGEST_BACK_OFF_S)
    back_off_s = longest_s * random.uniform(0.5, 1.0)  # noqa: S311  # jitter, no secret
    can_help = isinstance(error, WorkerCrashedError) and job.attempts < job.max_attempts
    if can_help and now + back_off_s < job.deadline:
        return partial(Job.retried, error=error, not_before=now + back_off_s)
    return partial(Job.failed, error=error, now=now)
