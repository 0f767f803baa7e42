"""What holds for every call over gRPC: limits, errors, ids, deadlines, cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import numpy as np
import psutil
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status

from conftest import RunningServer
from grpc_stubs import MESSAGE_LIMIT
from paddlewheel.config import Limits
from paddlewheel.grpc.calls import Handlers, Rpc
from paddlewheel.grpc.protos import open_inference_pb2 as pb
from paddlewheel.telemetry.metrics import Metrics
from waiting import eventually

SERVICE = "/inference.GRPCInferenceService/"


def request_of(model: str, array: np.ndarray) -> pb.ModelInferRequest:
    """Return a call of an echo model."""
    tensor = pb.ModelInferRequest.InferInputTensor(name="input", datatype="FP32", shape=array.shape)
    return pb.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[array.tobytes()])


def slow(seconds: float) -> pb.ModelInferRequest:
    """Return a call that takes so long."""
    return request_of("slow", np.full((1, 1), seconds, np.float32))


def other() -> pb.ModelInferRequest:
    """Return a call of a model whose pace is not known: it is not refused for what it will probably take."""
    return request_of("other", np.zeros((1, 1), np.float32))


def infer(channel: grpc.Channel) -> grpc.UnaryUnaryMultiCallable:
    """Return the call ModelInfer."""
    return channel.unary_unary(
        SERVICE + "ModelInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelInferResponse.FromString,
    )


@pytest.fixture(autouse=True)
def ready(server: RunningServer) -> None:
    """Have a worker up, whatever the test before did to it."""
    server.wait_ready()


@pytest.fixture
async def aio(server: RunningServer) -> AsyncIterator[grpc.aio.Channel]:
    """Return an asyncio channel."""
    async with grpc.aio.insecure_channel(server.grpc) as channel:
        yield channel


def sized(size: int) -> pb.ModelInferRequest:
    """Return a call whose message has exactly `size` bytes, with a parameter that the answer does not have."""
    request = request_of("floats", np.zeros(size // 4 - 100, np.float32))
    filler = request.parameters["filler"]
    filler.string_param = "x" * 200
    filler.string_param += "x" * (size - request.ByteSize())
    assert request.ByteSize() == size
    return request


def test_message_limit(server: RunningServer) -> None:
    """At the limit a message is taken, over it it is refused with the setting's name; the server goes on."""
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(server.grpc, options=options) as channel:
        for size in (MESSAGE_LIMIT - 1, MESSAGE_LIMIT):
            assert infer(channel)(sized(size)).outputs[0].shape[0] == size // 4 - 100
        for size in (MESSAGE_LIMIT + 1, 2 * MESSAGE_LIMIT - 10):
            with pytest.raises(
                grpc.RpcError, match=f"{size} bytes; at most 8000000 .*limits.max_message_bytes"
            ) as over:
                infer(channel)(sized(size))
            assert over.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.RpcError) as far_over:
            infer(channel)(sized(3 * MESSAGE_LIMIT))
        assert far_over.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert infer(channel)(sized(2000)).outputs


def test_an_answer_over_the_limit(channel: grpc.Channel) -> None:
    """A request that fits and whose answer does not gets a status that names the setting."""
    request = request_of("floats", np.zeros(1_999_000, np.float32))
    request.id = "i" * 200
    request.id += "i" * (MESSAGE_LIMIT - request.ByteSize())
    with pytest.raises(
        grpc.RpcError, match=r"The answer has \d+ bytes; at most 8000000 .*max_message_bytes"
    ) as refusal:
        infer(channel)(request)
    assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_five_megabytes_with_default_options(channel: grpc.Channel) -> None:
    """The client's default limit is on what it receives; what it sends is the server's affair."""
    noise = np.random.default_rng(0).integers(0, 255, 5_000_000, np.uint8).tobytes()
    request = pb.ModelInferRequest(model_name="ocr")
    request.inputs.add(name="image", datatype="BYTES", shape=[1]).contents.bytes_contents.append(noise)
    with pytest.raises(grpc.RpcError, match="picture") as refusal:
        infer(channel)(request)
    assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_claimed_size_allocates_nothing(server: RunningServer) -> None:
    """A frame that claims 2 GB is refused unread."""
    memory = psutil.Process(server.process.pid).memory_info
    before = memory().rss
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(server.grpc, options=options) as channel:
        call = channel.unary_unary(SERVICE + "ModelInfer")
        with pytest.raises(grpc.RpcError) as refusal:
            call(bytes(400_000_000))
        assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert memory().rss - before < 100_000_000


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"no message"])
def test_no_message(channel: grpc.Channel, data: bytes) -> None:
    """Bytes that are no message are the caller's fault."""
    with pytest.raises(grpc.RpcError, match=r"expected a inference.ModelInferRequest|expected") as refusal:
        channel.unary_unary(SERVICE + "ModelInfer")(data)
    assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_unknown_methods(server: RunningServer, channel: grpc.Channel) -> None:
    """They are named, and counted under one label."""
    before = server.metric('grpc_server_handled_total{grpc_method="unknown",grpc_code="UNIMPLEMENTED"}')
    for name in ("/inference.GRPCInferenceService/Nothing", "/some.Service/Method"):
        with pytest.raises(grpc.RpcError, match=f"no method '{name}'") as refusal:
            channel.unary_unary(name)(b"")
        assert refusal.value.code() == grpc.StatusCode.UNIMPLEMENTED
    after = server.metric('grpc_server_handled_total{grpc_method="unknown",grpc_code="UNIMPLEMENTED"}')
    assert after - before == 2


def test_request_ids(channel: grpc.Channel) -> None:
    """A well-formed id comes back, another is replaced; so it is with errors."""
    ids = []
    for metadata in ((("x-request-id", "mine-1"),), (("x-request-id", "no id"),), ()):
        _, call = infer(channel).with_call(slow(0), metadata=metadata)
        ids.append(dict(call.trailing_metadata())["x-request-id"])
    assert ids[0] == "mine-1"
    assert len({*ids, "no id"}) == 4
    with pytest.raises(grpc.RpcError) as refusal:
        infer(channel)(request_of("none", np.zeros((1, 1), np.float32)), metadata=(("x-request-id", "mine-2"),))
    assert dict(refusal.value.trailing_metadata())["x-request-id"] == "mine-2"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (asyncio.CancelledError(), grpc.StatusCode.UNAVAILABLE, "gave the call up"),
        (ValueError("secret"), grpc.StatusCode.INTERNAL, "under request id mine"),
    ],
)
async def test_whatever_goes_wrong_inside_is_a_status(error: BaseException, code: grpc.StatusCode, text: str) -> None:
    """A cancellation of our own, of which gRPC tells callers nothing, and a fault, of whose inside we tell nothing."""

    async def fails(_request: object, _call: object) -> pb.ServerLiveResponse:
        raise error

    descriptor = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name["ServerLive"]
    method = Rpc(descriptor, fails, pb.ServerLiveRequest.FromString)
    inner = grpc.aio.server()
    inner.add_generic_rpc_handlers((Handlers([method], Limits(), Metrics()),))
    port = inner.add_insecure_port("127.0.0.1:0")
    await inner.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(SERVICE + "ServerLive")
            with pytest.raises(grpc.aio.AioRpcError, match=text) as failure:
                await call(b"", metadata=(("x-request-id", "mine"),), timeout=5)
        assert failure.value.code() == code
        assert "secret" not in str(failure.value)
    finally:
        await inner.stop(None)


def test_a_worker_that_ends(channel: grpc.Channel) -> None:
    """A request that takes down two workers is an internal error."""
    with pytest.raises(grpc.RpcError, match="Two workers") as refusal:
        infer(channel)(request_of("ending", np.full((1, 1), 13, np.float32)))
    assert refusal.value.code() == grpc.StatusCode.INTERNAL


async def test_a_full_queue_says_when_to_come_back(server: RunningServer, aio: grpc.aio.Channel) -> None:
    """One runs, two wait, the next is refused with RetryInfo; those that waited are answered."""
    call, running = infer(aio), await _occupied(server, aio, 1)
    waiting = [asyncio.ensure_future(call(slow(0))) for _ in range(2)]
    await eventually(_depth(server), lambda depth: depth == 2, 0.9, "two wait")
    with pytest.raises(grpc.aio.AioRpcError, match="queue of model 'slow'") as refusal:
        await call(slow(0))
    assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    status = rpc_status.from_call(refusal.value)
    info = RetryInfo()
    assert status.details[0].Unpack(info)
    assert info.retry_delay.ToSeconds() >= 1
    await asyncio.gather(running, *waiting)


async def test_deadlines_reach_the_queue(server: RunningServer, aio: grpc.aio.Channel) -> None:
    """A call with 200 ms that waits behind a slow one ends after them, and its place is free again."""
    call, running = infer(aio), await _occupied(server, aio, 1.5)
    began = time.monotonic()
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await call(other(), timeout=0.2)
    assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert 0.15 < time.monotonic() - began < 0.5
    await eventually(_gauge(server, "queue_depth", "other"), lambda depth: depth == 0, 0.5, "the queue is empty")
    request = other()
    request.parameters["timeout"].int64_param = 200_000
    with pytest.raises(grpc.aio.AioRpcError, match="passed while the request was queued") as late:
        await call(request)
    assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    await running


async def test_a_cancelled_call_leaves_the_queue(server: RunningServer, aio: grpc.aio.Channel) -> None:
    """Its place is free before what runs has ended."""
    call, running = infer(aio), await _occupied(server, aio, 1.5)
    waiting = call(slow(0))
    asyncio.ensure_future(waiting)  # noqa: RUF006  # it begins the call
    await eventually(_depth(server), lambda depth: depth == 1, 1, "it waits")
    waiting.cancel()
    await eventually(_depth(server), lambda depth: depth == 0, 0.8, "it waits no more")
    assert not running.done()
    await running


async def _occupied(server: RunningServer, channel: grpc.aio.Channel, seconds: float) -> asyncio.Future[object]:
    """Occupy the only worker for some seconds and return the call that does."""
    running = asyncio.ensure_future(infer(channel)(slow(seconds)))
    await eventually(_gauge(server, "running_requests"), lambda count: count == 1, seconds / 2, "it runs")
    return running


def _depth(server: RunningServer) -> Callable[[], Awaitable[float]]:
    return _gauge(server, "queue_depth")


def _gauge(server: RunningServer, name: str, model: str = "slow") -> Callable[[], Awaitable[float]]:
    async def value() -> float:
        return await asyncio.to_thread(server.metric, f'paddlewheel_{name}{{model="{model}"}}')

    return value
