"""ModelService: a model with one tensor of FP32 in and one out, for clients that know just four fields.

Tensors larger than a message come in chunks, with a digest that is checked before the model sees them.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from google.protobuf.unknown_fields import UnknownFieldSet

from paddlewheel.errors import InvalidArgumentError, ResourceExhaustedError
from paddlewheel.grpc.calls import Call, Rpc, rpcs
from paddlewheel.grpc.protos import model_service_pb2 as pb
from paddlewheel.grpc.protos import model_service_wire_pb2 as wire
from paddlewheel.grpc.status import MessageTooLargeError
from paddlewheel.inference import Buffer, InferenceRequest, InferenceResponse, Tensor
from paddlewheel.repository import ModelDescription
from paddlewheel.service import Service

SERVICE: Final = pb.DESCRIPTOR.services_by_name["ModelService"]
_FLOAT_BYTES: Final = 4
_UPLOAD_RETRY_AFTER_S: Final = 1.0


def read_predict_request(data: bytes) -> wire.PredictRequest:
    """Read a message whose floats are packed, as all current encoders do, without making numbers of them.

    The protocol also allows one field for each float: such a message is read as it is declared, then packed.
    """
    message = wire.PredictRequest.FromString(data)
    unknown: Any = UnknownFieldSet(message)
    if any(field.field_number == wire.PredictRequest.INPUT_DATA_FIELD_NUMBER for field in unknown):
        message = wire.PredictRequest.FromString(pb.PredictRequest.FromString(data).SerializeToString())
    return message


class ModelService:
    """Serves the calls; what they lack is looked up in the model's signature."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._limits = service.settings.limits
        self._uploading = 0
        """Bytes that were announced by streams that are not over."""

    def rpcs(self) -> list[Rpc]:
        """Return the methods of the service."""
        methods: dict[str, Any] = {"Predict": self._predict, "PredictStream": self._predict_stream}
        return rpcs(SERVICE, methods, {"Predict": read_predict_request})

    async def _predict(self, message: wire.PredictRequest, call: Call) -> wire.PredictResponse:
        with self._service.refusals(message.model_name):
            model = message.model_name or self._only_model()
            given = message.input_data
            data = given[0] if len(given) == 1 else b"".join(given)
            request = self._request(model, message.version, message.shape, data, call)
        return await self._answer(request)

    async def _predict_stream(self, chunks: AsyncIterator[pb.PredictChunk], call: Call) -> wire.PredictResponse:
        first = await anext(chunks, pb.PredictChunk())
        if first.WhichOneof("part") != "header":
            raise InvalidArgumentError("The stream does not begin with a header; expected one, then data, then sha256.")
        header = first.header
        with self._service.refusals(header.model_name):
            model = header.model_name or self._only_model()
            # What cannot be served is refused before it is sent.
            self._input_of(model, header.version or None)
            with self._room_for(_size_of(header.shape)) as expected:
                data = await self._received(chunks, expected)
            request = self._request(model, header.version, header.shape, data, call)
        return await self._answer(request)

    @contextmanager
    def _room_for(self, size: int) -> Iterator[int]:
        """Give `size` if a tensor of so many bytes may come now, which then takes that room for as long as it comes."""
        limit = self._limits.max_upload_bytes
        if size > limit:
            raise MessageTooLargeError(
                f"The header announces {size} bytes; at most {limit} are taken (setting limits.max_upload_bytes)."
            )
        if self._uploading + size > limit:
            raise ResourceExhaustedError(
                f"Other streams bring {self._uploading} bytes now; with {size} more it would be more than {limit} "
                "(setting limits.max_upload_bytes).",
                retry_after_s=_UPLOAD_RETRY_AFTER_S,
            )
        self._uploading += size
        try:
            yield size
        finally:
            self._uploading -= size

    async def _received(self, chunks: AsyncIterator[pb.PredictChunk], expected: int) -> bytearray:
        """Return the tensor's bytes, `expected` as many; memory is taken for those that came only."""
        data, digest = bytearray(), hashlib.sha256()
        async for chunk in self._in_time(chunks):
            part = chunk.WhichOneof("part")
            if part == "sha256":
                if len(data) != expected:
                    break
                if chunk.sha256 != digest.digest():
                    raise InvalidArgumentError("The data does not have the digest that was sent: send it again.")
                return data
            if part != "data" or len(data) + len(chunk.data) > expected:
                break
            data += chunk.data
            await asyncio.to_thread(digest.update, chunk.data)
        raise InvalidArgumentError(
            f"The stream holds something else than {expected} bytes of data, as the header's shape has it, and then "
            f"their sha256; {len(data)} bytes came in order."
        )

    async def _in_time(self, chunks: AsyncIterator[pb.PredictChunk]) -> AsyncIterator[pb.PredictChunk]:
        """Give the chunks; a sender that falls silent is not waited for."""
        timeout_s = self._limits.receive_timeout_s
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise InvalidArgumentError(
                    f"No chunk came for {timeout_s:g} s (setting limits.receive_timeout_s)."
                ) from None
            if chunk is None:
                return
            yield chunk

    def _request(self, model: str, version: str, shape: Sequence[int], data: Buffer, call: Call) -> InferenceRequest:
        elements, rest = divmod(len(data), _FLOAT_BYTES)
        shape = tuple(shape) or (elements,)
        if rest or any(side < 0 for side in shape) or math.prod(shape) != elements:
            raise InvalidArgumentError(
                f"There are {len(data) / _FLOAT_BYTES:g} floats for shape {list(shape)}; expected {math.prod(shape)}."
            )
        name = self._input_of(model, version or None)
        tensor = Tensor(name, "FP32", tuple(shape), data)
        return InferenceRequest(
            call.id, model, (tensor,), version=version or None, deadline=call.deadline, sticky_key=call.sticky_key
        )

    def _input_of(self, model: str, version: str | None) -> str:
        """Return the name of the one input; raises :class:`InvalidArgumentError` for a model that has another form."""
        description = self._service.models.describe(model, version)
        if not _fits(description):
            raise InvalidArgumentError(
                f"Model '{model}' does not take one FP32 tensor and return FP32; call it with "
                "inference.GRPCInferenceService/ModelInfer."
            )
        return description.signature.inputs[0].name

    def _only_model(self) -> str:
        """Return the model that is meant by a call that names none."""
        models = self._service.models
        fitting = [name for name in models.names() if models.model_ready(name) and _fits(models.describe(name))]
        if len(fitting) == 1:
            return fitting[0]
        raise InvalidArgumentError(
            f"The request has no model_name; expected one of those that take one FP32 tensor: "
            f"{', '.join(fitting) or 'none is served'}."
        )

    async def _answer(self, request: InferenceRequest) -> wire.PredictResponse:
        return _written(await self._service.infer(request))


def _written(response: InferenceResponse) -> wire.PredictResponse:
    output = response.answer.outputs[0]
    timing_ms = response.answer.timing_ms
    return wire.PredictResponse(
        output_data=bytes(output.data),
        output_shape=output.shape,
        inference_time_ms=timing_ms["total"] - timing_ms["queue"],
        success=True,
        model_version=response.version,
    )


def _fits(description: ModelDescription) -> bool:
    """Tell whether a model takes one FP32 tensor and returns FP32 first."""
    inputs, outputs = description.signature.inputs, description.signature.outputs
    return [spec.datatype for spec in inputs] == ["FP32"] and [spec.datatype for spec in outputs[:1]] == ["FP32"]


def _size_of(shape: Sequence[int]) -> int:
    if not shape or any(side < 1 for side in shape):
        raise InvalidArgumentError(f"The header has shape {list(shape)}; expected at least 1 in each dimension.")
    return math.prod(shape) * _FLOAT_BYTES
