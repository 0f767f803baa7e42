"""How fast a model's queue drains, as measured: the base of `Retry-After` and of early refusal."""

from __future__ import annotations

_SMOOTHING = 0.2
_TRUSTED_SAMPLES = 5


class Pace:
    """A moving average of the seconds that a request occupies a worker."""

    def __init__(self) -> None:
        self._seconds_per_request = 0.0
        self._samples = 0

    @property
    def trusted(self) -> bool:
        """Whether enough batches were seen to refuse a request on the strength of this."""
        return self._samples >= _TRUSTED_SAMPLES

    def record(self, batch_s: float, requests: int) -> None:
        """Take in that a batch of `requests` occupied a worker for `batch_s` seconds."""
        sample = batch_s / requests
        weight = max(_SMOOTHING, 1 / (self._samples + 1))
        self._seconds_per_request += weight * (sample - self._seconds_per_request)
        self._samples += 1

    def wait_s(self, ahead: int, workers: int) -> float:
        """Return the seconds until `ahead` requests are done by `workers` workers."""
        return ahead * self._seconds_per_request / max(workers, 1)
