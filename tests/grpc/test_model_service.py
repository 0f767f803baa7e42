"""ModelService: clients of four fields, versions, and tensors in chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from conftest import RunningServer, StartServer
from grpc_stubs import FOUR_FIELDS, UNPACKED, UPLOAD_LIMIT, messages, predict_stub
from paddlewheel.grpc.model_service import read_predict_request
from paddlewheel.grpc.protos import model_service_pb2 as pb
from paddlewheel.grpc.protos import model_service_wire_pb2 as wire
from waiting import eventually

X = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(autouse=True)
def loaded(server: RunningServer) -> None:
    """Have the adder loaded."""
    assert server.client.post("/v2/repository/models/adder/load").status_code == 200


def predict(channel: grpc.Channel, request: pb.PredictRequest) -> pb.PredictResponse:
    """Call Predict."""
    return predict_stub(channel, pb)(request)  # type: ignore[arg-type]


def upload(channel: grpc.Channel, chunks: Iterator[pb.PredictChunk], answer: Any = pb.PredictResponse) -> Any:
    """Call PredictStream; the answer is read as `answer`."""
    call = channel.stream_unary(
        "/paddle_inference.ModelService/PredictStream",
        request_serializer=pb.PredictChunk.SerializeToString,
        response_deserializer=answer.FromString,
    )
    return call(chunks, timeout=60)


def in_chunks(array: np.ndarray, model: str, size: int, *, digest: bytes | None = None) -> Iterator[pb.PredictChunk]:
    """Give the chunks of a tensor, of `size` bytes each."""
    data = memoryview(array.tobytes())
    yield pb.PredictChunk(header=pb.PredictHeader(shape=array.shape, model_name=model))
    for start in range(0, len(data), size):
        yield pb.PredictChunk(data=bytes(data[start : start + size]))
    yield pb.PredictChunk(sha256=digest or hashlib.sha256(data).digest())


@pytest.mark.parametrize("text", [FOUR_FIELDS, UNPACKED], ids=["packed", "unpacked"])
def test_a_client_of_four_fields(channel: grpc.Channel, text: str) -> None:
    """A client generated from the four-field messages, whichever way it writes its floats."""
    types = messages(text)
    call = predict_stub(channel, types)
    response = call(types.PredictRequest(input_data=X.ravel(), shape=X.shape, model_name="adder"))
    assert list(response.output_data) == [value + 2 for value in X.ravel()]
    assert list(response.output_shape) == [3, 2]
    assert response.success
    assert 0 < response.inference_time_ms < 1000


def test_versions(channel: grpc.Channel) -> None:
    """A caller may name a version; the answer says which it was."""
    for version in ("1", "2"):
        response = predict(
            channel, pb.PredictRequest(input_data=[1, 1], shape=[1, 2], model_name="adder", version=version)
        )
        assert (response.model_version, response.output_data[0]) == (version, 1 + int(version))
    with pytest.raises(grpc.RpcError, match="no version '3'") as refusal:
        predict(channel, pb.PredictRequest(input_data=[1, 1], shape=[1, 2], model_name="adder", version="3"))
    assert refusal.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (pb.PredictRequest(input_data=[1, 2, 3], shape=[2, 2], model_name="adder"), r"3 floats for shape \[2, 2\]"),
        (pb.PredictRequest(input_data=[1, 2], shape=[-1, -2], model_name="adder"), r"shape \[-1, -2\]"),
        (pb.PredictRequest(input_data=[1, 2, 3], shape=[1, 3], model_name="adder"), r"expected FP32 and \[-1, 2\]"),
        (pb.PredictRequest(input_data=[1], model_name="ocr"), "ModelInfer"),
        (pb.PredictRequest(input_data=[1, 2], shape=[1, 2]), "no model_name; expected one of .*adder"),
    ],
)
def test_bad_requests(channel: grpc.Channel, request_: pb.PredictRequest, text: str) -> None:
    """What is wrong is named."""
    with pytest.raises(grpc.RpcError, match=text) as refusal:
        predict(channel, request_)
    assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_without_a_shape_it_is_one_dimension(channel: grpc.Channel) -> None:
    """The article's clients may leave the shape out."""
    response = predict(channel, pb.PredictRequest(input_data=[1, 2, 3], model_name="floats"))
    assert (list(response.output_data), list(response.output_shape)) == ([1, 2, 3], [3])


def test_floats_are_kept_to_the_bit() -> None:
    """NaN payloads, infinities and subnormal numbers, in a list that its sender has split in two."""
    bits = np.array([0x7FC00001, 0x7F800000, 0xFF800000, 0x00000001, 0x80000000], np.uint32)
    whole = pb.PredictRequest(input_data=bits.view(np.float32)).SerializeToString()
    message = read_predict_request(whole + whole)
    assert b"".join(message.input_data) == bits.tobytes() * 2


def test_the_only_model_needs_no_name(start_server: StartServer) -> None:
    """A server with one model that fits serves calls that name none."""
    server = start_server('[models.one]\npipeline = "tensor"\nengine = "echo"\n')
    with grpc.insecure_channel(server.grpc) as channel:
        assert list(predict(channel, pb.PredictRequest(input_data=[1, 2], shape=[1, 2])).output_data) == [1, 2]
    server.stop()


def test_chunks(channel: grpc.Channel) -> None:
    """A tensor in chunks that end within values."""
    array = np.random.default_rng(0).random(100_001, dtype=np.float32)
    response = upload(channel, in_chunks(array, "floats", 77_777))
    assert np.array_equal(response.output_data, array)


def test_chunks_that_do_not_add_up(channel: grpc.Channel) -> None:
    """A wrong digest, too much, too little, no header, no digest, an unknown model: each is named."""
    header, data = in_chunks(X, "floats", 10**6, digest=b"0" * 32), pb.PredictChunk(data=b"0" * 4)
    good = list(in_chunks(X.ravel(), "floats", 10**6))
    wrong = {
        "digest": list(in_chunks(X.ravel(), "floats", 10**6, digest=b"0" * 32)),
        "24 bytes came": [*good[:2], data, good[2]],
        "0 bytes came": [good[0], good[2]],
        "does not begin with a header": good[1:],
        "24 bytes of data, as the header's shape has it, and then their sha256": good[:2],
        "no model 'none'": list(in_chunks(X, "none", 10**6)),
        r"shape \[0\]": list(in_chunks(X[:0].ravel(), "floats", 10**6)),
    }
    assert header is not None
    for text, chunks in wrong.items():
        with pytest.raises(grpc.RpcError, match=text):
            upload(channel, iter(chunks))


def test_an_upload_over_the_limit_is_refused_by_its_header(channel: grpc.Channel) -> None:
    """The claimed size is enough to refuse it; the text names the setting."""

    def chunks() -> Iterator[pb.PredictChunk]:
        yield pb.PredictChunk(header=pb.PredictHeader(shape=[3_000_001], model_name="floats"))
        yield pb.PredictChunk(data=b"0" * 1000)

    with pytest.raises(grpc.RpcError, match=r"12000004 bytes; at most 12000000 .*limits.max_upload_bytes") as refusal:
        upload(channel, chunks())
    assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_uploads_share_the_room_that_there_is(server: RunningServer) -> None:
    """While one stream has announced most of the limit, another is told to come again; then there is room."""
    array = np.zeros(UPLOAD_LIMIT // 4 - 100, np.float32)
    chunks = list(in_chunks(array, "floats", 2_000_000))
    async with grpc.aio.insecure_channel(server.grpc, options=[("grpc.max_receive_message_length", -1)]) as channel:
        method = channel.stream_unary(
            "/paddle_inference.ModelService/PredictStream",
            request_serializer=pb.PredictChunk.SerializeToString,
            response_deserializer=wire.PredictResponse.FromString,
        )
        first = method()
        for chunk in chunks[:3]:
            await first.write(chunk)

        async def ending() -> tuple[grpc.StatusCode, str]:
            call = method(iter(in_chunks(array[:2000], "floats", 2_000_000)))
            return await call.code(), await call.details()

        refused = grpc.StatusCode.RESOURCE_EXHAUSTED
        _, text = await eventually(ending, lambda end: end[0] is refused, 10, "the first stream has its room")
        assert "Other streams bring" in text
        first.cancel()
        await eventually(ending, lambda end: end[0] is grpc.StatusCode.OK, 10, "there is room again")


@pytest.mark.slow
def test_200_megabytes(start_server: StartServer) -> None:
    """A tensor of 200 MB arrives whole: the model counts what it holds."""
    server = start_server("""
[models.floats]
pipeline = "tensor"
engine = "echo"
engine_options = { ports = [{ name = "input", datatype = "FP32", shape = [-1] }] }
[limits]
max_message_bytes = 210_000_000
""")
    array = np.arange(50_000_000, dtype=np.float32)
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(server.grpc, options=options) as channel:
        response = upload(channel, in_chunks(array, "floats", 4_000_000), wire.PredictResponse)
        assert response.output_data == array.tobytes()
    server.stop()
