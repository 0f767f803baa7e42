"""The one tree of errors: each class has a canonical code, an HTTP status, and says whether a retry can help.

    PaddlewheelError
    ├── InvalidArgumentError        400  the request is wrong
    │   ├── PayloadTooLargeError    413  over a limit of bytes or pixels
    │   ├── UnsupportedFormatError  415  bytes of a kind that is not read here
    │   ├── UndecodableError        422  the right kind, but broken
    │   └── UnprintableError        422  the answer has no form in the encoding that was asked for
    ├── UnauthenticatedError        401
    ├── PermissionDeniedError       403
    ├── NotFoundError               404
    ├── ExpiredError                410  existed, past its time to live
    ├── ConflictError               409
    │   └── KeyReusedError          422  an idempotency key came with another request
    ├── ResourceExhaustedError      503  the queue or the store is full
    │   └── RateLimitedError        429  over the caller's own limit
    ├── UnavailableError            503  draining, or the model is not loaded
    │   └── ModelLoadError          503  a model's files, engine or device do not work
    ├── DeadlineExceededError       504
    ├── CancelledByCallerError      499  the caller left; seen in logs and metrics only
    └── InternalError               500
        ├── WorkerCrashedError      500
        └── ConfigurationError      500  seen at start only

Edges translate a class to their protocol; workers send it as :class:`ErrorRecord`. Nothing here does I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An error as it travels between processes and into job stores: plain data, no class is looked up by import."""

    kind: str
    detail: str
    retry_after_s: float | None = None


class PaddlewheelError(Exception):
    """Base of every error that a caller may see; `detail` says what was wrong, with what, and what would be right."""

    code: ClassVar[str]
    http_status: ClassVar[int]
    title: ClassVar[str]
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s

    def record(self) -> ErrorRecord:
        """Return this error as plain data."""
        return ErrorRecord(type(self).__name__, self.detail, self.retry_after_s)


class InvalidArgumentError(PaddlewheelError):
    """The request itself is wrong; sending it again changes nothing."""

    code = "INVALID_ARGUMENT"
    http_status = 400
    title = "Invalid request"


class PayloadTooLargeError(InvalidArgumentError):
    """The request is over a limit of bytes or pixels."""

    http_status = 413
    title = "Payload too large"


class UnsupportedFormatError(InvalidArgumentError):
    """The bytes are of a kind that is not read here."""

    http_status = 415
    title = "Unsupported format"


class UndecodableError(InvalidArgumentError):
    """The bytes are of a known kind but cannot be decoded."""

    http_status = 422
    title = "Input cannot be decoded"


class UnprintableError(InvalidArgumentError):
    """The answer holds what cannot be written in the form that was asked for; another form can."""

    http_status = 422
    title = "Answer cannot be written"


class UnauthenticatedError(PaddlewheelError):
    """No valid credentials came with the request."""

    code = "UNAUTHENTICATED"
    http_status = 401
    title = "Unauthenticated"


class PermissionDeniedError(PaddlewheelError):
    """The credentials are valid but do not allow this."""

    code = "PERMISSION_DENIED"
    http_status = 403
    title = "Permission denied"


class NotFoundError(PaddlewheelError):
    """No such route, model, version or job."""

    code = "NOT_FOUND"
    http_status = 404
    title = "Not found"


class ExpiredError(PaddlewheelError):
    """The thing existed and is past its time to live."""

    code = "EXPIRED"
    http_status = 410
    title = "Expired"


class ConflictError(PaddlewheelError):
    """The request contradicts the present state."""

    code = "CONFLICT"
    http_status = 409
    title = "Conflict"


class KeyReusedError(ConflictError):
    """An idempotency key came again with another request."""

    http_status = 422
    title = "Idempotency key reused"


class ResourceExhaustedError(PaddlewheelError):
    """A bounded queue or store is full; `retry_after_s` comes from its real drain rate."""

    code = "RESOURCE_EXHAUSTED"
    http_status = 503
    title = "Overloaded"
    retryable = True


class RateLimitedError(ResourceExhaustedError):
    """The caller is over a limit of its own."""

    http_status = 429
    title = "Rate limited"


class UnavailableError(PaddlewheelError):
    """The server drains, or the model is not (yet) loaded."""

    code = "UNAVAILABLE"
    http_status = 503
    title = "Unavailable"
    retryable = True


class ModelLoadError(UnavailableError):
    """A model's files, engine or device do not work; the text names the file and the remedy."""

    title = "Model not loaded"
    retryable = False


class DeadlineExceededError(PaddlewheelError):
    """The caller's deadline passed, queued or running."""

    code = "DEADLINE_EXCEEDED"
    http_status = 504
    title = "Deadline exceeded"
    retryable = True


class CancelledByCallerError(PaddlewheelError):
    """The caller left before its answer was ready."""

    code = "CANCELLED"
    http_status = 499
    title = "Cancelled"


class InternalError(PaddlewheelError):
    """A fault of ours; the text carries nothing of the inside."""

    code = "INTERNAL"
    http_status = 500
    title = "Internal error"


class WorkerCrashedError(InternalError):
    """The request took down two workers, one after the other, and is not tried again."""

    code = "WORKER_CRASHED"
    title = "Worker crashed"


class ConfigurationError(InternalError):
    """The settings are wrong; the server does not start."""

    title = "Configuration error"


def _tree(root: type[PaddlewheelError]) -> dict[str, type[PaddlewheelError]]:
    known = {root.__name__: root}
    for child in root.__subclasses__():
        known |= _tree(child)
    return known


_KINDS = _tree(PaddlewheelError)


def from_record(record: ErrorRecord) -> PaddlewheelError:
    """Return the error that `record` describes; an unknown kind becomes :class:`InternalError`."""
    kind = _KINDS.get(record.kind, InternalError)
    return kind(record.detail, retry_after_s=record.retry_after_s)


def shutting_down() -> UnavailableError:
    """Return the error for who comes, or is not served yet, when the server stops."""
    return UnavailableError("The server is shutting down.", retry_after_s=1.0)
