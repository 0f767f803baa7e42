"""Messages of the Open Inference Protocol to requests and back; nothing is cast, cut or wrapped around on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson

from paddlewheel.caller import read_classes, read_options
from paddlewheel.config import Limits
from paddlewheel.errors import InvalidArgumentError
from paddlewheel.grpc.calls import Call
from paddlewheel.grpc.protos import open_inference_pb2 as pb
from paddlewheel.inference import BYTES, DATATYPES, DTYPES, InferenceRequest, InferenceResponse, Tensor

_CONTENTS: Final = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}
_WIRE_DTYPES: Final = {"int64_contents": np.int64, "uint64_contents": np.uint64}
_OF_THIS_ENCODING: Final = ("triton_enable_empty_final_response",)


def read_request(message: pb.ModelInferRequest, call: Call, limits: Limits) -> InferenceRequest:
    """Return what `message` asks for; raises :class:`InvalidArgumentError`."""
    parameters = read_parameters(message.parameters)
    for name in _OF_THIS_ENCODING:
        parameters.pop(name, None)
    options = read_options(parameters, limits, deadline=call.deadline, sticky_key=call.sticky_key)
    return InferenceRequest(
        call.id,
        message.model_name,
        _read_tensors(message),
        options.parameters,
        version=message.model_version or None,
        priority=options.priority,
        deadline=options.deadline,
        sticky_key=options.sticky_key,
        outputs=tuple(output.name for output in message.outputs),
        classes=read_classes((output.name, read_parameters(output.parameters)) for output in message.outputs),
    )


def read_parameters(given: Mapping[str, pb.InferParameter]) -> dict[str, Any]:
    """Return parameters as plain values; one without a value is left out."""
    chosen = {name: (parameter, parameter.WhichOneof("parameter_choice")) for name, parameter in given.items()}
    return {name: getattr(parameter, choice) for name, (parameter, choice) in chosen.items() if choice is not None}


def write_parameters(values: Mapping[str, Any], target: Any) -> None:
    """Put plain values into a map of parameters; those that have no form there go as JSON text."""
    for name, value in values.items():
        if isinstance(value, bool):
            target[name].bool_param = value
        elif isinstance(value, int):
            target[name].int64_param = value
        elif isinstance(value, float):
            target[name].double_param = value
        else:
            target[name].string_param = value if isinstance(value, str) else orjson.dumps(value).decode()


def _read_tensors(message: pb.ModelInferRequest) -> tuple[Tensor, ...]:
    raw: Sequence[bytes] = message.raw_input_contents
    if not raw:
        return tuple(_read_typed(each) for each in message.inputs)
    if len(raw) != len(message.inputs):
        raise InvalidArgumentError(
            f"There are {len(raw)} raw_input_contents for {len(message.inputs)} inputs; expected one for each."
        )
    return tuple(_read_raw(each, data) for each, data in zip(message.inputs, raw, strict=True))


def _read_raw(given: pb.ModelInferRequest.InferInputTensor, data: bytes) -> Tensor:
    if given.HasField("contents") and given.contents.ByteSize():
        raise InvalidArgumentError(
            f"Input '{given.name:.100}' has contents, and the request has raw_input_contents; expected one of the two."
        )
    return Tensor(given.name, given.datatype, _shape(given), data)


def _read_typed(given: pb.ModelInferRequest.InferInputTensor) -> Tensor:
    field = _CONTENTS.get(given.datatype)
    if field is None:
        hint = "send it in raw_input_contents" if given.datatype in DTYPES else f"expected one of {_listed(DATATYPES)}"
        raise InvalidArgumentError(
            f"Input '{given.name:.100}' has datatype '{given.datatype:.20}', which has no field in contents; {hint}."
        )
    filled = [descriptor.name for descriptor, _ in given.contents.ListFields()]
    if filled not in ([], [field]):
        raise InvalidArgumentError(
            f"Input '{given.name:.100}' of datatype {given.datatype} has {_listed(filled)}; expected {field}."
        )
    elements, shape = getattr(given.contents, field), _shape(given)
    if len(elements) != math.prod(shape):
        raise InvalidArgumentError(
            f"Input '{given.name:.100}' of shape {list(shape)} has {len(elements)} elements in {field}; expected "
            f"{math.prod(shape)}."
        )
    if given.datatype == BYTES:
        return Tensor.from_elements(given.name, elements, shape)
    # A field has whole numbers of 32 or 64 bits; left alone, numpy makes floats of some of the latter.
    array, dtype = np.array(elements, _WIRE_DTYPES.get(field)), DTYPES[given.datatype]
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    if dtype.kind in "iu" and (lost := cast != array).any():
        raise InvalidArgumentError(
            f"Input '{given.name:.100}' has the value {array[lost][0]}, which does not fit {given.datatype}."
        )
    return Tensor.from_numpy(given.name, cast.reshape(shape))


def _shape(given: pb.ModelInferRequest.InferInputTensor) -> tuple[int, ...]:
    shape = tuple(given.shape)
    if any(side < 0 for side in shape):
        raise InvalidArgumentError(f"Input '{given.name:.100}' has shape {list(shape)}; expected no side below 0.")
    return shape


def write_response(response: InferenceResponse, given_id: str) -> pb.ModelInferResponse:
    """Return the answer, its tensors as raw contents; its id is the one that the caller gave, else the request's."""
    message = pb.ModelInferResponse(
        model_name=response.model, model_version=response.version, id=given_id or response.request_id
    )
    write_parameters(response.answer.parameters, message.parameters)
    for tensor in response.answer.outputs:
        message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        message.raw_output_contents.append(bytes(tensor.data))
    return message


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
