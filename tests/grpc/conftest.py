"""A server with models of every kind that gRPC clients call."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from conftest import RunningServer, StartServer
from grpc_stubs import MESSAGE_LIMIT, UPLOAD_LIMIT
from onnx_models import write_adder


@pytest.fixture(scope="session")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """Return a server with adders that clients load, OCR, and echoes of text, of bytes and of floats."""
    folder = tmp_path_factory.mktemp("repository")
    write_adder(folder / "adder" / "1" / "model.onnx", 1)
    write_adder(folder / "adder" / "2" / "model.onnx", 2)
    (folder / "adder" / "model.toml").write_text('version_policy = "all"\n')
    return start_server(f"""
[pool.default]
workers = 1
nice = 0
[repository]
path = "{folder}"
control = "explicit"
[limits]
max_message_bytes = {MESSAGE_LIMIT}
max_upload_bytes = {UPLOAD_LIMIT}
[models.ocr]
pack = "ppocrv6-tiny"
[models.text]
pipeline = "tensor"
engine = "echo"
engine_options = {{ ports = [{{ name = "input", datatype = "BYTES", shape = [-1] }}] }}
[models.floats]
pipeline = "tensor"
engine = "echo"
engine_options = {{ ports = [{{ name = "input", datatype = "FP32", shape = [-1] }}] }}
[models.ending]
pipeline = "tensor"
engine = "echo"
engine_options = {{ exit_on = 13 }}
[models.other]
pipeline = "tensor"
engine = "echo"
[models.slow]
pipeline = "tensor"
engine = "echo"
batching = {{ max_batch_size = 1, max_queue_size = 2 }}
engine_options = {{ delay_from_input = true }}
""")


@pytest.fixture
def channel(server: RunningServer) -> Iterator[grpc.Channel]:
    """Return a channel with the options that clients have by default."""
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel
