"""What a job is called with and what comes of it, as bytes that a store keeps: MessagePack, plain data only."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from paddlewheel.inference import Answer, InferenceRequest, InferenceResponse, Tensor


class _Tensor(msgspec.Struct, array_like=True, frozen=True):
    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


class _Request(msgspec.Struct, frozen=True):
    id: str
    model: str
    inputs: tuple[_Tensor, ...]
    parameters: dict[str, Any]
    version: str | None
    priority: int
    sticky_key: str | None
    outputs: tuple[str, ...]
    classes: dict[str, int]


class _Response(msgspec.Struct, frozen=True):
    request_id: str
    model: str
    version: str
    outputs: tuple[_Tensor, ...]
    parameters: dict[str, Any]
    timing_ms: dict[str, float]


_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(_Request)
_responses = msgspec.msgpack.Decoder(_Response)


def encode_request(request: InferenceRequest) -> bytes:
    """Return `request` as bytes, without its deadline: that is the job's."""
    return _encoder.encode(
        _Request(
            request.id,
            request.model,
            _written(request.inputs),
            dict(request.parameters),
            request.version,
            request.priority,
            request.sticky_key,
            request.outputs,
            dict(request.classes),
        )
    )


def digest_of(request: InferenceRequest) -> bytes:
    """Return what tells requests apart, whatever their ids and deadlines (SHA-256, 32 bytes)."""
    return hashlib.sha256(encode_request(msgspec.structs.replace(request, id=""))).digest()


def decode_request(data: bytes, deadline: float) -> InferenceRequest:
    """Return the request, to be answered by `deadline` (an instant of the monotonic clock)."""
    kept = _requests.decode(data)
    return InferenceRequest(
        kept.id,
        kept.model,
        _read(kept.inputs),
        kept.parameters,
        version=kept.version,
        priority=kept.priority,
        deadline=deadline,
        sticky_key=kept.sticky_key,
        outputs=kept.outputs,
        classes=kept.classes,
    )


def encode_response(response: InferenceResponse) -> bytes:
    """Return `response` as bytes."""
    answer = response.answer
    return _encoder.encode(
        _Response(
            response.request_id,
            response.model,
            response.version,
            _written(answer.outputs),
            dict(answer.parameters),
            dict(answer.timing_ms),
        )
    )


def decode_response(data: bytes) -> InferenceResponse:
    """Return the response."""
    kept = _responses.decode(data)
    answer = Answer(_read(kept.outputs), kept.parameters, kept.timing_ms)
    return InferenceResponse(kept.request_id, kept.model, kept.version, answer)


def _written(tensors: tuple[Tensor, ...]) -> tuple[_Tensor, ...]:
    return tuple(_Tensor(each.name, each.datatype, each.shape, bytes(each.data)) for each in tensors)


def _read(tensors: tuple[_Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(Tensor(each.name, each.datatype, each.shape, each.data) for each in tensors)
