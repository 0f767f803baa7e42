"""Health and reflection, with the clients that gRPC's users have."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from conftest import RunningServer, StartServer
from paddlewheel.grpc.protos import model_service_pb2, open_inference_pb2
from waiting import eventually, wait_for

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = ("inference.GRPCInferenceService", "paddle_inference.ModelService")


def status_of(channel: grpc.Channel, name: str) -> int:
    """Return what a check of `name` says."""
    return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name)).status


def test_check(channel: grpc.Channel, server: RunningServer) -> None:
    """The server, its services, each model; a name that nobody has is NOT_FOUND."""
    server.client.post("/v2/repository/models/adder/load")
    for name in ("", *SERVICES, "ocr", "adder"):
        assert status_of(channel, name) == SERVING
    with pytest.raises(grpc.RpcError, match="no service or model 'none'") as refusal:
        status_of(channel, "none")
    assert refusal.value.code() == grpc.StatusCode.NOT_FOUND


def test_watch_follows_a_model(channel: grpc.Channel, server: RunningServer) -> None:
    """Two watchers of a model hear that it is unloaded and loaded; that one of them leaves is nothing to the other."""
    stub, load = health_pb2_grpc.HealthStub(channel), "/v2/repository/models/adder/load"
    server.client.post(load)
    request = health_pb2.HealthCheckRequest(service="adder")
    first, second = stub.Watch(request, timeout=30), stub.Watch(request, timeout=30)
    assert [next(first).status, next(second).status] == [SERVING, SERVING]
    server.client.post("/v2/repository/models/adder/unload")
    assert next(first).status == NOT_SERVING
    first.cancel()
    assert next(second).status == NOT_SERVING
    server.client.post(load)
    assert next(second).status == SERVING
    second.cancel()


def test_a_lost_worker_and_a_drain(start_server: StartServer) -> None:
    """Without a worker it does not serve, with a new one it does; a drain is told first, then the watch ends."""
    server = start_server("""
[server]
drain_delay_s = 1.0
[pool.default]
workers = 1
[models.echo]
pipeline = "tensor"
engine = "echo"
engine_options = { load_delay_s = 1.0 }
""")
    with grpc.insecure_channel(server.grpc) as channel:
        watch: Iterator[health_pb2.HealthCheckResponse] = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service="echo"), timeout=60
        )
        assert next(watch).status == SERVING
        (worker,) = server.workers()
        os.kill(worker.pid, signal.SIGKILL)
        wait_for(lambda: status_of(channel, "") == NOT_SERVING, 10, "not serving")
        wait_for(lambda: status_of(channel, "") == SERVING, 30, "serving again")
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: status_of(channel, "") == NOT_SERVING, 1, "the drain is told")
        assert list(watch)[-1].status == NOT_SERVING
    assert server.process.wait(20) == 0


def test_reflection(channel: grpc.Channel) -> None:
    """A tool that has no .proto files can find every service, message and field."""
    database = ProtoReflectionDescriptorDatabase(channel)
    services = set(database.get_services())
    assert services == {*SERVICES, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    pool = DescriptorPool(database)
    found = pool.FindServiceByName("paddle_inference.ModelService").FindMethodByName("Predict").input_type
    assert [field.name for field in found.fields] == ["input_data", "shape", "model_name", "version"]
    for module in (open_inference_pb2, model_service_pb2):
        for name, message in module.DESCRIPTOR.message_types_by_name.items():
            there = pool.FindMessageTypeByName(f"{module.DESCRIPTOR.package}.{name}")
            assert [(f.name, f.number) for f in there.fields] == [(f.name, f.number) for f in message.fields]


async def test_a_stream_is_ended_by_a_drain_and_not_cut(start_server: StartServer) -> None:
    """What was sent before is answered, then the stream ends with UNAVAILABLE."""
    server = start_server("""
[pool.default]
workers = 1
[models.slow]
pipeline = "tensor"
engine = "echo"
batching = { max_batch_size = 1 }
engine_options = { delay_s = 1.0 }
""")
    tensor = open_inference_pb2.ModelInferRequest.InferInputTensor(name="input", datatype="FP32", shape=[1, 1])
    request = open_inference_pb2.ModelInferRequest(model_name="slow", inputs=[tensor], raw_input_contents=[b"\0" * 4])
    async with grpc.aio.insecure_channel(server.grpc) as channel:
        call = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=open_inference_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=open_inference_pb2.ModelStreamInferResponse.FromString,
        )()
        for _ in range(3):
            await call.write(request)

        async def taken() -> float:
            running = await asyncio.to_thread(server.metric, 'paddlewheel_running_requests{model="slow"}')
            return running + await asyncio.to_thread(server.metric, 'paddlewheel_queue_depth{model="slow"}')

        await eventually(taken, lambda count: count == 3, 0.9, "all three are taken")
        server.process.send_signal(signal.SIGTERM)
        answers = [await call.read() for _ in range(3)]
        assert [answer.error_message for answer in answers] == [""] * 3
        with pytest.raises(grpc.aio.AioRpcError, match="shutting down") as ended:
            await call.read()
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
    assert await asyncio.to_thread(server.process.wait, 20) == 0
