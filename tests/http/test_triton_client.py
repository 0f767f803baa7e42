"""The client that Triton's users have, unchanged, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from conftest import RunningServer, StartServer
from onnx_models import write_adder


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """Return a server with an adder that clients load, OCR, and an echo of text."""
    folder = tmp_path_factory.mktemp("repository")
    write_adder(folder / "adder" / "1" / "model.onnx", 1)
    return start_server(f"""
[pool.default]
workers = 1
nice = 0
[repository]
path = "{folder}"
control = "explicit"
[models.ocr]
pack = "ppocrv6-tiny"
[models.text]
pipeline = "tensor"
engine = "echo"
engine_options = {{ ports = [{{ name = "input", datatype = "BYTES", shape = [-1] }}] }}
""")


@pytest.fixture
def client(server: RunningServer) -> Iterator[triton.InferenceServerClient]:
    """Return a client; the adder is loaded."""
    client = triton.InferenceServerClient(urlsplit(server.url).netloc)
    client.load_model("adder")
    yield client
    client.close()


def input_of(name: str, array: np.ndarray, datatype: str = "FP32", *, binary: bool = True) -> triton.InferInput:
    """Return an input of a call."""
    tensor = triton.InferInput(name, array.shape, datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def test_health_and_metadata(client: triton.InferenceServerClient) -> None:
    """What the client asks first."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("adder")
    assert not client.is_model_ready("none")
    assert client.get_server_metadata()["name"] == "paddlewheel"
    assert client.get_model_metadata("adder")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert client.get_model_config("adder")["max_batch_size"] == 8


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_infer(client: triton.InferenceServerClient, *, binary_in: bool, binary_out: bool) -> None:
    """Binary and JSON, in and out; packed too."""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for packing in (None, "gzip", "deflate"):
        result = client.infer(
            "adder",
            [input_of("x", x, binary=binary_in)],
            outputs=[triton.InferRequestedOutput("y", binary_data=binary_out)],
            request_id="mine",
            request_compression_algorithm=packing,
        )
        assert np.array_equal(result.as_numpy("y"), x + 1)
        assert result.get_response()["id"] == "mine"
        assert result.get_response()["model_version"] == "1"


def test_async_infer(client: triton.InferenceServerClient) -> None:
    """Several calls under way at once, each with its own answer."""
    calls = [client.async_infer("adder", [input_of("x", np.full((1, 2), i, np.float32))]) for i in range(8)]
    assert [call.get_result().as_numpy("y")[0, 0] for call in calls] == [i + 1 for i in range(8)]


def test_text(client: triton.InferenceServerClient) -> None:
    """BYTES there and back, in binary and in JSON."""
    words = np.array(["中文", "", "a b"], dtype=object)
    for binary in (True, False):
        result = client.infer("text", [input_of("input", words, "BYTES", binary=binary)])
        assert [each.decode() for each in result.as_numpy("output")] == list(words)


def test_ocr_is_a_model(client: triton.InferenceServerClient) -> None:
    """A picture in a BYTES tensor; text, scores and boxes come back as tensors."""
    picture = (Path(__file__).parent.parent / "samples" / "card.jpg").read_bytes()
    result = client.infer("ocr", [input_of("image", np.array([picture], dtype=object), "BYTES")])
    texts = [each.decode() for each in result.as_numpy("text")]
    assert len(texts) == 7
    assert result.as_numpy("box").shape == (7, 4, 2)
    assert result.as_numpy("score").min() > 0.5
    only = client.infer(
        "ocr",
        [input_of("image", np.array([picture], dtype=object), "BYTES")],
        outputs=[triton.InferRequestedOutput("text")],
        parameters={"score_threshold": 1.0},
    )
    assert only.as_numpy("text").size < 7
    assert only.as_numpy("box") is None


def test_statistics_and_repository(client: triton.InferenceServerClient) -> None:
    """Counts of inferences; the index; unload and load."""
    client.infer("adder", [input_of("x", np.zeros((2, 2), np.float32))])
    (statistics,) = client.get_inference_statistics("adder")["model_stats"]
    assert statistics["inference_count"] >= 2
    assert {(each["name"], each["state"]) for each in client.get_model_repository_index()} >= {("adder", "READY")}
    client.unload_model("adder")
    assert not client.is_model_ready("adder")
    client.load_model("adder")
    assert client.is_model_ready("adder")


def test_errors_are_the_clients_own(client: triton.InferenceServerClient) -> None:
    """A refusal arrives with its text and status."""
    with pytest.raises(InferenceServerException, match="expected FP32") as refusal:
        client.infer("adder", [input_of("x", np.zeros((1, 2), np.int64), "INT64")])
    assert refusal.value.status() == "400"
    with pytest.raises(InferenceServerException, match="no model 'none'"):
        client.load_model("none")


async def test_asyncio(server: RunningServer) -> None:
    """The asyncio client, many calls at once."""
    async with triton_aio.InferenceServerClient(urlsplit(server.url).netloc) as client:
        assert await client.is_server_live()
        await client.load_model("adder")
        results = await asyncio.gather(
            *(client.infer("adder", [input_of("x", np.full((1, 2), i, np.float32))]) for i in range(16))
        )
        assert [result.as_numpy("y")[0, 0] for result in results] == [i + 1 for i in range(16)]
