"""Errors as gRPC statuses: code, text, and where waiting helps, for how long (``google.rpc.RetryInfo``)."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from paddlewheel.errors import PaddlewheelError, PayloadTooLargeError

_DETAILS: Final = "grpc-status-details-bin"
_OTHER_NAMES: Final = {
    "EXPIRED": grpc.StatusCode.NOT_FOUND,
    "CONFLICT": grpc.StatusCode.ABORTED,
    "WORKER_CRASHED": grpc.StatusCode.INTERNAL,
}


class MessageTooLargeError(PayloadTooLargeError):
    """A message is over the limit; gRPC has its own code for that."""

    code = "RESOURCE_EXHAUSTED"


def code_of(error: PaddlewheelError) -> grpc.StatusCode:
    """Return the status code for `error`: the one of its name, or the nearest."""
    return _OTHER_NAMES.get(error.code) or grpc.StatusCode[error.code]


def details_of(error: PaddlewheelError) -> tuple[tuple[str, bytes], ...]:
    """Return the trailing metadata that says when to try `error` again; none where that would not help."""
    if error.retry_after_s is None:
        return ()
    delay = Duration()
    delay.FromNanoseconds(round(error.retry_after_s * 1e9))
    detail = AnyMessage()
    detail.Pack(RetryInfo(retry_delay=delay))
    status = Status(code=code_of(error).value[0], message=error.detail, details=[detail])
    return ((_DETAILS, status.SerializeToString()),)
