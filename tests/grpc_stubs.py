"""Clients made from .proto texts at test time, as a user of another project would have them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

MESSAGE_LIMIT = 8_000_000
UPLOAD_LIMIT = 12_000_000
"""What the server of the tests takes, in bytes."""

FOUR_FIELDS = """
syntax = "proto3";
package paddle_inference;
service ModelService { rpc Predict (PredictRequest) returns (PredictResponse); }
message PredictRequest { repeated float input_data = 1; repeated int32 shape = 2; string model_name = 3; }
message PredictResponse {
  repeated float output_data = 1; repeated int32 output_shape = 2; float inference_time_ms = 3; bool success = 4;
}
"""
UNPACKED = FOUR_FIELDS.replace("input_data = 1;", "input_data = 1 [packed = false];")


def messages(text: str) -> SimpleNamespace:
    """Return the message classes of a .proto file's text, in a descriptor pool of their own."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "service.proto").write_text(text)
        made = Path(folder) / "set"
        # In a process of its own: in one with grpc and the compiler, importing Paddle aborts.
        compiler = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={made}"]
        subprocess.run([*compiler, "service.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(files.file[0].SerializeToString())
    file = pool.FindFileByName("service.proto")
    found = {name: message_factory.GetMessageClass(each) for name, each in file.message_types_by_name.items()}
    return SimpleNamespace(**found)


def predict_stub(channel: grpc.Channel, types: SimpleNamespace) -> Any:
    """Return what a generated stub has for Predict."""
    return channel.unary_unary(
        "/paddle_inference.ModelService/Predict",
        request_serializer=types.PredictRequest.SerializeToString,
        response_deserializer=types.PredictResponse.FromString,
    )
