"""The examples do what their first lines say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from conftest import REPOSITORY, RunningServer, StartServer

POINTS = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with the network saved in Paddle's new and old form; the old one also for other engines."""
    folder = tmp_path_factory.mktemp("models")
    command = [sys.executable, "-W", "ignore", str(REPOSITORY / "examples" / "train_mlp.py"), str(folder)]
    subprocess.run(command, check=True, timeout=100)
    subprocess.run(
        [*command, "--version", "2"], check=True, timeout=100, env=os.environ | {"FLAGS_enable_pir_api": "0"}
    )
    (folder / "mlp" / "model.toml").write_text('version_policy = "all"\n')
    shutil.copytree(folder / "mlp" / "2", folder / "by-paddle" / "1")
    (folder / "by-paddle" / "model.toml").write_text('engine = "paddle"\n')
    export = [sys.executable, str(REPOSITORY / "examples" / "export_onnx.py")]
    for version in ("1", "2"):
        source, target = folder / "mlp" / version, folder / "by-onnxruntime" / version
        subprocess.run([*export, str(source), str(target)], check=True, timeout=100)
    (folder / "by-onnxruntime" / "model.toml").write_text(
        'engine = "onnxruntime"\nversion_policy = "all"\nlabels = "labels.txt"\n'
    )
    (folder / "by-onnxruntime" / "labels.txt").write_text("左下\n右下\n左上\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def server(start_server: StartServer, models: Path) -> RunningServer:
    """Return a server with that repository."""
    return start_server(f'[pool.default]\nworkers = 1\nnice = 0\n[repository]\npath = "{models}"\n')


def test_a_network_in_both_of_paddles_forms(server: RunningServer, models: Path) -> None:
    """PIR goes to Paddle, `.pdmodel` to OpenVINO; both say what they take, and learned the quarters of the plane."""
    assert (models / "mlp" / "1" / "inference.json").exists()
    assert (models / "mlp" / "2" / "inference.pdmodel").exists()
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    for version, platform in (("1", "paddle_tensor"), ("2", "openvino_tensor")):
        metadata = client.get_model_metadata("mlp", version)
        assert metadata["platform"] == platform
        assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
        probabilities = _infer(client, "mlp", version)
        assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
        quarters = (POINTS[:, 0] > 0) + 2 * (POINTS[:, 1] > 0)
        assert (probabilities.argmax(axis=1) == quarters).mean() > 0.9


def test_three_engines_give_one_answer(server: RunningServer) -> None:
    """The same network through OpenVINO, Paddle and, exported, ONNX Runtime: equal within 1e-4."""
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    by_openvino = _infer(client, "mlp", "2")
    assert np.allclose(by_openvino, _infer(client, "by-paddle", "1"), atol=1e-4)
    assert np.allclose(by_openvino, _infer(client, "by-onnxruntime", "1"), atol=1e-4)
    assert client.get_model_metadata("by-onnxruntime")["platform"] == "onnxruntime_tensor"
    assert np.allclose(_infer(client, "mlp", "1"), _infer(client, "by-onnxruntime", "2"), atol=1e-4)


def test_the_clients_of_the_example(server: RunningServer) -> None:
    """Plain HTTP, Triton's client and a gRPC client of four fields print the same answer."""
    command = [sys.executable, str(REPOSITORY / "examples" / "call_mlp.py")]
    addresses = ["--http", server.url.removeprefix("http://"), "--grpc", server.grpc]
    done = subprocess.run([*command, *addresses], check=True, timeout=60, capture_output=True, text=True)
    answers = {line.split(": ")[1] for line in done.stdout.splitlines()}
    (answer,) = answers
    assert np.array(answer.split(), float).reshape(4, 4).argmax(axis=1).tolist() == [0, 1, 2, 3]
    assert len(done.stdout.splitlines()) == 3


def test_curl(server: RunningServer) -> None:
    """The documentation's call."""
    tensor = '{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [[0.5, 0.5]]}]}'
    command = ["curl", "--fail", "--silent", f"{server.url}/v2/models/mlp/infer", "-d", tensor]
    answer = json.loads(subprocess.run(command, check=True, timeout=60, capture_output=True).stdout)
    assert np.argmax(answer["outputs"][0]["data"]) == 3


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_classes_in_place_of_scores(server: RunningServer, protocol: str) -> None:
    """The two best of each row, with their labels; a class that has none goes without."""
    if protocol == "http":
        client, kit = triton.InferenceServerClient(server.url.removeprefix("http://")), triton
    else:
        client, kit = triton_grpc.InferenceServerClient(server.grpc), triton_grpc
    points = np.array([[-0.5, -0.5], [0.5, 0.5]], np.float32)
    tensor = kit.InferInput("x", points.shape, "FP32")
    tensor.set_data_from_numpy(points)
    metadata = client.get_model_metadata("by-onnxruntime", **({"as_json": True} if protocol == "grpc" else {}))
    name = metadata["outputs"][0]["name"]
    wanted = kit.InferRequestedOutput(name, class_count=2)
    found = client.infer("by-onnxruntime", [tensor], outputs=[wanted]).as_numpy(name)
    assert found.shape == (2, 2)
    (score, index, label), last = found[0, 0].decode().split(":"), found[1, 0].decode().split(":")
    assert (float(score) > 0.9, index, label) == (True, "0", "左下")
    assert last[1:] == ["3"]
    with pytest.raises(InferenceServerException, match="expected 1 or more"):
        client.infer("by-onnxruntime", [tensor], outputs=[kit.InferRequestedOutput(name, class_count=-1)])


def _infer(client: triton.InferenceServerClient, model: str, version: str) -> np.ndarray:
    tensor = triton.InferInput("x", POINTS.shape, "FP32")
    tensor.set_data_from_numpy(POINTS)
    response = client.infer(model, [tensor], model_version=version)
    (output,) = response.get_response()["outputs"]
    answer = response.as_numpy(output["name"])
    assert answer is not None
    return np.asarray(answer)
