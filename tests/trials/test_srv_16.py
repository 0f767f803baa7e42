"""SRV-16: broken model files and a missing GPU are said, not suffered; what is whole is served."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import RunningServer, StartServer
from paddlewheel.catalog import PACKS, pull
from trials.calls import calling, rows_of
from waiting import wait_for

ECHO = 'pipeline = "tensor"\nengine = "echo"\n'
GPU = "gpu:63"  # none has so many


@pytest.fixture(scope="module")
def packs(models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a models folder in which every pack is damaged in its own way."""
    folder = tmp_path_factory.mktemp("damaged")
    for name in PACKS:
        shutil.copytree(pull(PACKS[name], models_dir).folder, folder / name)
    # Of the right size, so that only reading it can tell.
    _fill(folder / "ppocrv6-tiny" / "detection.onnx")
    _swap(folder / "ppocrv6-small" / "recognition.onnx", folder / "ppocrv6-small" / "detection.onnx")
    (folder / "ppocrv4-mobile" / "recognition.pdiparams").unlink()
    _fill(folder / "ppocrv5-mobile" / "detection.pdiparams", keep=100_000)
    return folder


def _fill(path: Path, keep: int = 0) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:keep].ljust(len(whole), b"\0"))


def _swap(one: Path, other: Path) -> None:
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)


@pytest.fixture(scope="module")
def server(start_server: StartServer, packs: Path) -> RunningServer:
    """Return a server with one good model and every kind of broken one, without an index to pull from."""
    toml = f"""
[pool.default]
workers = 2
nice = 0
[pool.gpu]
device = "{GPU}"
[models.good]
{ECHO}
[models.zeroed]
pack = "ppocrv6-tiny"
[models.swapped]
pack = "ppocrv6-small"
[models.missing]
pack = "ppocrv4-mobile"
[models.cut]
pack = "ppocrv5-mobile"
engine = "paddle"
[models.crashes]
{ECHO}engine_options = {{ exit_at_load = true }}
[models.on_gpu]
pack = "ppocrv6-tiny"
pool = "gpu"
[models.echo_on_gpu]
{ECHO}pool = "gpu"
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        server = start_server(toml, ready=False, flags=("--set", f"models_dir={packs}"))
    wait_for(lambda: all(state["state"] != "loading" for state in _models(server).values()), 60, "all are settled")
    return server


def _models(server: RunningServer) -> dict[str, dict[str, str]]:
    models: dict[str, dict[str, str]] = server.client.get("/readyz").json()["models"]
    return models


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("zeroed", ["detection.onnx", "pull"]),
        ("swapped", ["ppocrv6-small", "detection.onnx", "pull"]),
        ("missing", ["ppocrv4-mobile", "recognition.pdiparams is missing", "pull"]),
        ("cut", ["detection.pdiparams", "damaged", "pull"]),
        ("crashes", ["ends the worker process", "status 13"]),
        ("on_gpu", [GPU]),
        ("echo_on_gpu", [GPU, "device"]),
    ],
)
async def test_a_broken_model_says_why(server: RunningServer, model: str, reason: list[str]) -> None:
    """/readyz, the model's own readiness and a call all say no; the reason names the file or device, and a remedy."""
    state = _models(server)[model]
    assert state["state"] == "failed"
    async with calling(server) as caller:
        refused = await caller.send(model, 1)
        assert (await caller.http.get(f"/v2/models/{model}/ready")).status_code == 503
    assert refused.status_code == 503
    for part in reason:
        assert part in state["reason"]
        assert part in refused.detail


async def test_the_good_model_serves_beside_the_broken_ones(server: RunningServer) -> None:
    """The good model is loaded in both workers and answers; the server as a whole is not ready."""
    assert _models(server)["good"] == {"state": "ready"}
    assert server.client.get("/readyz").status_code == 503
    assert server.metric('paddlewheel_workers{pool="default",state="idle"}') == 2
    async with calling(server) as caller:
        for value in range(20):
            assert rows_of(await caller.send("good", value)) == [[value]]
    assert server.process.poll() is None


def test_the_summary_names_what_failed(server: RunningServer) -> None:
    """The person at the terminal reads which model is missing, and that the server is not ready."""
    summary = server.log.read_text()
    assert "failed  zeroed" in summary
    assert "/readyz stays at 503" in summary


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (f"[models.broken]\n{ECHO}engine_options = {{ exit_at_load = true }}\n", "ends the worker process"),
        (f'[pool.gpu]\ndevice = "{GPU}"\n[models.broken]\n{ECHO}pool = "gpu"\n', GPU),
    ],
    ids=["crash", "gpu"],
)
def test_strict_mode_does_not_start(tmp_path: Path, broken: str, reason: str) -> None:
    """With `strict` one model that cannot be loaded ends the start, soon, with status 1 and the reason."""
    settings = tmp_path / "paddlewheel.toml"
    settings.write_text(f"strict = true\n[pool.default]\nworkers = 2\n[models.good]\n{ECHO}{broken}")
    command = [
        sys.executable,
        "-m",
        "paddlewheel",
        "serve",
        "--port",
        "0",
        "--grpc-port",
        "0",
        "--config",
        str(settings),
    ]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - began < 15
