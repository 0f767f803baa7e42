"""Messages to requests and back; the same verdicts as over HTTP (SRV-11)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from paddlewheel.config import Limits
from paddlewheel.errors import InvalidArgumentError
from paddlewheel.grpc.calls import Call
from paddlewheel.grpc.codec import read_request, write_response
from paddlewheel.grpc.protos import open_inference_pb2 as pb
from paddlewheel.inference import DTYPES, Answer, InferenceRequest, InferenceResponse, Tensor

CALL = Call("id", None, {})
FIELDS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
ARRAYS = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda name: st.tuples(st.just(name), hnp.arrays(DTYPES[name], hnp.array_shapes(max_dims=3, max_side=4)))
)


def read(message: pb.ModelInferRequest) -> InferenceRequest:
    """Read a request."""
    return read_request(message, CALL, Limits())


def typed(datatype: str, shape: tuple[int, ...], **contents: object) -> pb.ModelInferRequest:
    """Return a request with one input whose elements are in `contents`."""
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype=datatype, shape=shape)
    tensor.contents.MergeFrom(pb.InferTensorContents(**contents))
    return pb.ModelInferRequest(model_name="m", inputs=[tensor])


@given(ARRAYS)
@example(("UINT64", np.array([2**63 + 1, 0], np.uint64)))
def test_contents_and_raw_contents_are_the_same_tensor(drawn: tuple[str, np.ndarray]) -> None:
    """Every datatype that has a field, any shape, every bit pattern."""
    datatype, array = drawn
    flat = array.ravel()
    message = typed(datatype, array.shape, **{FIELDS[datatype]: flat.tolist()})
    raw = pb.ModelInferRequest(model_name="m", raw_input_contents=[array.tobytes()])
    raw.inputs.add(name="x", datatype=datatype, shape=array.shape)
    for request in (read(message), read(raw)):
        (tensor,) = request.inputs
        assert (tensor.datatype, tensor.shape) == (datatype, array.shape)
        assert np.array_equal(tensor.numpy(), array, equal_nan=array.dtype.kind == "f")


@given(st.lists(st.binary(max_size=20), min_size=1))
def test_bytes(elements: list[bytes]) -> None:
    """BYTES in contents and raw are the same."""
    message = typed("BYTES", (len(elements),), bytes_contents=elements)
    assert [bytes(each) for each in read(message).inputs[0].elements()] == elements


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_goes_raw(datatype: str) -> None:
    """They have no field of their own; raw they are taken, and answered raw."""
    with pytest.raises(InvalidArgumentError, match="raw_input_contents"):
        read(typed(datatype, (1,), fp32_contents=[1]))
    array = np.array([1.5, -2], DTYPES[datatype])
    message = pb.ModelInferRequest(model_name="m", raw_input_contents=[array.tobytes()])
    message.inputs.add(name="x", datatype=datatype, shape=[2])
    tensor = read(message).inputs[0]
    assert np.array_equal(tensor.numpy(), array)
    response = write_response(InferenceResponse("id", "m", "1", Answer((tensor,))), "")
    assert response.outputs[0].datatype == datatype
    assert response.raw_output_contents[0] == array.tobytes()


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (typed("UINT8", (1,), uint_contents=[256]), "value 256, which does not fit UINT8"),
        (typed("INT8", (1,), int_contents=[-129]), "value -129, which does not fit INT8"),
        (typed("UINT8", (1,), int_contents=[-1]), "has int_contents; expected uint_contents"),
        (typed("INT64", (1,), fp32_contents=[1]), "has fp32_contents; expected int64_contents"),
        (typed("FP32", (2,), fp32_contents=[1]), r"shape \[2\] has 1 elements .* expected 2"),
        (typed("FP32", (-1,), fp32_contents=[1]), r"shape \[-1\]; expected no side below 0"),
        (typed("FLOAT", (1,), fp32_contents=[1]), "datatype 'FLOAT', .* expected one of BOOL"),
        (typed("FP32", (1,), fp32_contents=[1], fp64_contents=[1]), "expected fp32_contents"),
    ],
)
def test_what_does_not_fit_is_named(message: pb.ModelInferRequest, text: str) -> None:
    """No cast, no wrap-around: the tensor, what was expected and what came."""
    with pytest.raises(InvalidArgumentError, match=f"'x'.*{text}"):
        read(message)


def test_raw_and_typed_contents_exclude_each_other() -> None:
    """One for each input, or none."""
    message = typed("FP32", (1,), fp32_contents=[1])
    message.raw_input_contents.append(b"1234")
    with pytest.raises(InvalidArgumentError, match="one of the two"):
        read(message)
    message.raw_input_contents.append(b"1234")
    with pytest.raises(InvalidArgumentError, match="2 raw_input_contents for 1 inputs"):
        read(message)


def test_parameters_there_and_back() -> None:
    """Values of every kind; what has no kind of its own goes as JSON."""
    values = {"flag": True, "count": 3, "score": 0.5, "text": "中文", "list": [1, 2]}
    response = write_response(InferenceResponse("id", "m", "1", Answer((), values)), "mine")
    assert response.id == "mine"
    kinds = {name: parameter.WhichOneof("parameter_choice") for name, parameter in response.parameters.items()}
    assert kinds == {
        "flag": "bool_param",
        "count": "int64_param",
        "score": "double_param",
        "text": "string_param",
        "list": "string_param",
    }
    assert response.parameters["list"].string_param == "[1,2]"
    request = pb.ModelInferRequest(model_name="m")
    for name in ("flag", "count", "score", "text"):
        request.parameters[name].CopyFrom(response.parameters[name])
    request.parameters["empty"].SetInParent()
    request.parameters["priority"].uint64_param = 2
    read_back = read(request)
    assert read_back.parameters == {name: values[name] for name in ("flag", "count", "score", "text")}
    assert read_back.priority == 2


@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_an_answer_is_the_tensor(values: list[float]) -> None:
    """Raw contents hold its bytes."""
    array = np.array(values, np.float32)
    message = write_response(InferenceResponse("id", "m", "1", Answer((Tensor.from_numpy("y", array),))), "")
    assert message.raw_output_contents[0] == array.tobytes()
    assert list(message.outputs[0].shape) == [len(values)]
