"""The examples do what their first lines say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton

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


def test_two_engines_give_one_answer(server: RunningServer) -> None:
    """The same files through OpenVINO and through Paddle are equal within 1e-4."""
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    assert np.allclose(_infer(client, "mlp", "2"), _infer(client, "by-paddle", "1"), atol=1e-4)


def _infer(client: triton.InferenceServerClient, model: str, version: str) -> np.ndarray:
    tensor = triton.InferInput("x", POINTS.shape, "FP32")
    tensor.set_data_from_numpy(POINTS)
    response = client.infer(model, [tensor], model_version=version)
    (output,) = response.get_response()["outputs"]
    answer = response.as_numpy(output["name"])
    assert answer is not None
    return np.asarray(answer)
