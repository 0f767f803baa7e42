"""The gRPC clients that Triton's users have, unchanged, against a real server."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from conftest import RunningServer

PICTURE = Path(__file__).parent.parent / "samples" / "card.jpg"


@pytest.fixture
def client(server: RunningServer) -> Iterator[triton.InferenceServerClient]:
    """Return a client; the adder is loaded."""
    client = triton.InferenceServerClient(server.grpc)
    client.load_model("adder")
    yield client
    client.close()


def input_of(name: str, array: np.ndarray, datatype: str = "FP32") -> triton.InferInput:
    """Return an input of a call."""
    tensor = triton.InferInput(name, array.shape, datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def row(value: float) -> list[triton.InferInput]:
    """Return the inputs of a call of the adder."""
    return [input_of("x", np.full((1, 2), value, np.float32))]


def test_health_and_metadata(client: triton.InferenceServerClient) -> None:
    """What the client asks first."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("adder")
    assert client.is_model_ready("adder", "1")
    assert not client.is_model_ready("adder", "3")
    assert not client.is_model_ready("none")
    assert client.get_server_metadata().name == "paddlewheel"
    metadata = client.get_model_metadata("adder", as_json=True)
    assert metadata["versions"] == ["1", "2"]
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "2"]}]
    config = client.get_model_config("adder").config
    assert (config.max_batch_size, config.backend, list(config.input[0].dims)) == (8, "openvino", [2])


def test_infer(client: triton.InferenceServerClient) -> None:
    """The highest version, or the one that is named; packed too."""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for version, added in (("", 2), ("1", 1)):
        for packing in (None, "gzip", "deflate"):
            result = client.infer(
                "adder",
                [input_of("x", x)],
                model_version=version,
                outputs=[triton.InferRequestedOutput("y")],
                request_id="mine",
                compression_algorithm=packing,
            )
            assert np.array_equal(result.as_numpy("y"), x + added)
            response = result.get_response()
            assert (response.id, response.model_name, response.model_version) == ("mine", "adder", str(added))


def test_a_request_larger_than_a_batch_is_split(client: triton.InferenceServerClient) -> None:
    """Batches have eight rows at most; twenty go in and come out."""
    x = np.arange(40, dtype=np.float32).reshape(20, 2)
    assert np.array_equal(client.infer("adder", [input_of("x", x)]).as_numpy("y"), x + 2)


def test_async_infer(client: triton.InferenceServerClient) -> None:
    """Several calls under way at once, each with its own answer; one that is cancelled."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    for i in range(8):
        client.async_infer("adder", row(i), callback=lambda result, error: answers.put((result, error)))
    found = [answers.get(timeout=30) for _ in range(8)]
    assert sorted(result.as_numpy("y")[0, 0] for result, _ in found) == [i + 2 for i in range(8)]
    slow = input_of("input", np.full((1, 1), 1, np.float32))
    context = client.async_infer("slow", [slow], callback=lambda result, error: answers.put((result, error)))
    context.cancel()
    _, error = answers.get(timeout=0.8)
    assert "CANCELLED" in str(error.status())


def test_sticky_keys_and_priorities(client: triton.InferenceServerClient) -> None:
    """Parameters of the protocol and of the server arrive, and bad ones are named."""
    result = client.infer("adder", row(1), priority=2, timeout=10_000_000, parameters={"sticky_key": "me"})
    assert result.as_numpy("y")[0, 0] == 3
    with pytest.raises(InferenceServerException, match="sticky_key"):
        client.infer("adder", row(1), parameters={"sticky_key": True})
    with pytest.raises(InferenceServerException, match="'timeout' is 9000000000 microseconds; expected"):
        client.infer("adder", row(1), timeout=9_000_000_000)


def test_text(client: triton.InferenceServerClient) -> None:
    """BYTES there and back."""
    words = np.array(["中文", "", "a b"], dtype=object)
    result = client.infer("text", [input_of("input", words, "BYTES")])
    assert [each.decode() for each in result.as_numpy("output")] == list(words)


def test_ocr_is_a_model(client: triton.InferenceServerClient) -> None:
    """A picture in a BYTES tensor; text, scores and boxes come back as tensors, and its size as parameters."""
    picture = np.array([PICTURE.read_bytes()], dtype=object)
    result = client.infer("ocr", [input_of("image", picture, "BYTES")])
    assert len([each.decode() for each in result.as_numpy("text")]) == 7
    assert result.as_numpy("box").shape == (7, 4, 2)
    assert result.get_response().parameters["width"].int64_param == 1024
    only = client.infer(
        "ocr",
        [input_of("image", picture, "BYTES")],
        outputs=[triton.InferRequestedOutput("text")],
        parameters={"score_threshold": 1.0},
    )
    assert only.as_numpy("text").size < 7
    assert only.as_numpy("box") is None


def test_statistics_and_repository(client: triton.InferenceServerClient) -> None:
    """Counts of inferences by version; the index; unload and load."""
    client.infer("adder", [input_of("x", np.zeros((2, 2), np.float32))], model_version="1")
    (statistics,) = client.get_inference_statistics("adder", "1").model_stats
    assert statistics.version == "1"
    assert statistics.inference_count >= 2
    assert statistics.inference_stats.success.ns > 0
    index = client.get_model_repository_index(as_json=True)["models"]
    assert {"name": "adder", "version": "1", "state": "READY"} in index
    client.unload_model("adder")
    assert not client.is_model_ready("adder")
    with pytest.raises(InferenceServerException, match="is not loaded") as refusal:
        client.infer("adder", row(1))
    assert refusal.value.status() == "StatusCode.UNAVAILABLE"
    client.load_model("adder")
    assert client.is_model_ready("adder")


def test_errors_are_the_clients_own(client: triton.InferenceServerClient) -> None:
    """A refusal arrives with its text and status."""
    with pytest.raises(InferenceServerException, match="expected FP32") as refusal:
        client.infer("adder", [input_of("x", np.zeros((1, 2), np.int64), "INT64")])
    assert refusal.value.status() == "StatusCode.INVALID_ARGUMENT"
    with pytest.raises(InferenceServerException, match="no model 'none'"):
        client.load_model("none")
    with pytest.raises(InferenceServerException, match="takes no parameters"):
        client.load_model("adder", config="{}")


def test_stream(client: triton.InferenceServerClient) -> None:
    """Answers come when they are there, each with its request's id; a failure is one of them and ends nothing."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    for i in range(100):
        client.async_stream_infer("adder", row(i), request_id=str(i))
    client.async_stream_infer("none", row(0))
    client.async_stream_infer("adder", row(7), request_id="last", enable_empty_final_response=True)
    found = [answers.get(timeout=30) for _ in range(102)]
    client.stop_stream()
    good = {result.get_response().id: result for result, error in found if error is None}
    assert {name: result.as_numpy("y")[0, 0] for name, result in good.items() if name != "last"} == {
        str(i): i + 2 for i in range(100)
    }
    assert good["last"].get_response().parameters["triton_final_response"].bool_param
    (error,) = [error for _, error in found if error is not None]
    assert "no model 'none'" in str(error)


async def test_asyncio(server: RunningServer) -> None:
    """The asyncio client: many calls at once, and a stream."""
    async with triton_aio.InferenceServerClient(server.grpc) as client:
        assert await client.is_server_live()
        await client.load_model("adder")
        results = await asyncio.gather(*(client.infer("adder", row(i)) for i in range(16)))
        assert [result.as_numpy("y")[0, 0] for result in results] == [i + 2 for i in range(16)]

        async def requests() -> AsyncIterator[dict[str, Any]]:
            for i in range(5):
                yield {"model_name": "adder", "inputs": row(i), "request_id": str(i)}

        found = {}
        async for result, error in client.stream_infer(requests()):
            assert error is None
            found[result.get_response().id] = result.as_numpy("y")[0, 0]
        assert found == {str(i): i + 2 for i in range(5)}
