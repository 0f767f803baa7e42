"""The messages are those that the field's clients have, and live beside them in one process."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tritonclient.grpc.model_config_pb2 as their_config
import tritonclient.grpc.service_pb2 as theirs
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from paddlewheel.grpc.protos import model_service_pb2, model_service_wire_pb2, open_inference_pb2

THEIRS = {**theirs.DESCRIPTOR.message_types_by_name, **their_config.DESCRIPTOR.message_types_by_name}


def kind(field: FieldDescriptor) -> tuple[str, int, int, bool]:
    """Return what two ends of a wire must agree on."""
    return field.name, field.number, field.type, field.is_repeated


def fields(message: Descriptor) -> set[tuple[str, int, int, bool]]:
    """Return the fields of a message, with those of the messages that it declares."""
    return {kind(field) for field in message.fields}.union(*map(fields, message.nested_types))


@pytest.mark.parametrize("name", sorted(open_inference_pb2.DESCRIPTOR.message_types_by_name))
def test_our_fields_are_theirs(name: str) -> None:
    """Names, numbers and types are Triton's; of some messages we have a part."""
    assert fields(open_inference_pb2.DESCRIPTOR.message_types_by_name[name]) <= fields(THEIRS[name])


def test_our_methods_are_theirs() -> None:
    """Their messages and streams."""
    ours = open_inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    others = theirs.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    for method in ours.methods:
        other = others[method.name]
        assert method.input_type.full_name == other.input_type.full_name
        assert method.output_type.full_name == other.output_type.full_name
        assert (method.client_streaming, method.server_streaming) == (other.client_streaming, other.server_streaming)


def test_the_server_reads_what_clients_declare() -> None:
    """The two declarations of ModelService differ in how the floats are seen, and in nothing else."""
    for name in ("PredictRequest", "PredictResponse"):
        declared = model_service_pb2.DESCRIPTOR.message_types_by_name[name].fields
        read = model_service_wire_pb2.DESCRIPTOR.message_types_by_name[name].fields
        assert [kind(field) for field in declared[1:]] == [kind(field) for field in read[1:]]
        assert declared[0].type == FieldDescriptor.TYPE_FLOAT
        assert read[0].type == FieldDescriptor.TYPE_BYTES
        assert declared[0].number == read[0].number


@pytest.mark.parametrize("first", ["tritonclient.grpc", "paddlewheel.grpc.edge"])
def test_both_can_be_imported(first: str) -> None:
    """Messages of the same full names do not meet, whoever comes first."""
    code = f"import {first}; import tritonclient.grpc, paddlewheel.grpc.edge"
    subprocess.run([sys.executable, "-c", code], check=True)
