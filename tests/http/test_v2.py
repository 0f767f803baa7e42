"""The Open Inference Protocol over HTTP against a real server."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from conftest import RunningServer, StartServer
from onnx_models import write_adder
from paddlewheel.http.infer import HEADER_LENGTH

PORTS = {
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
}  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with two versions of an adder, and a model that is broken."""
    folder = tmp_path_factory.mktemp("repository")
    for version in (1, 2):
        write_adder(folder / "adder" / str(version) / "model.onnx", version)
    (folder / "adder" / "model.toml").write_text('version_policy = "all"\n')
    (folder / "broken" / "1").mkdir(parents=True)
    (folder / "broken" / "1" / "model.onnx").write_bytes(b"")
    return folder


@pytest.fixture(scope="module")
def server(start_server: StartServer, repository: Path) -> RunningServer:
    """Return a server with the repository, and an echo of each datatype."""
    echoes = "".join(
        f"""
[models.{datatype.lower()}]
pipeline = "tensor"
engine = "echo"
engine_options = {{ ports = [{{ name = "input", datatype = "{datatype}", shape = [-1, -1] }}] }}
"""
        for datatype in (*PORTS, "BF16", "BYTES")
    )
    toml = f"""
[pool.default]
workers = 1
nice = 0
[repository]
path = "{repository}"
control = "explicit"
[models.nan]
pipeline = "tensor"
engine = "echo"
engine_options = {{ replace_with = nan }}
[models.two]
pipeline = "tensor"
engine = "echo"
[models.two.engine_options]
ports = [{{ name = "a" }}, {{ name = "b", datatype = "INT64" }}]
outputs = ["c", "d"]
{echoes}"""
    server = start_server(toml)
    assert server.client.post("/v2/repository/models/adder/load").status_code == 200
    return server


def tensor(
    data: Any, datatype: str = "FP32", name: str = "input", shape: Any = None, **parameters: Any
) -> dict[str, Any]:
    """Return a tensor in JSON; its shape is that of the data."""
    given = {
        "name": name,
        "datatype": datatype,
        "shape": list(np.shape(data)) if shape is None else shape,
        "data": data,
    }
    return given | ({"parameters": parameters} if parameters else {})


def infer(server: RunningServer, model: str, *inputs: dict[str, Any], **more: Any) -> httpx2.Response:
    """Call a model in JSON."""
    return server.client.post(f"/v2/models/{model}/infer", json={"inputs": inputs, **more})


def error(response: httpx2.Response) -> str:
    """Return the text of a refusal, with status 400."""
    assert response.status_code == 400, response.text
    text: str = response.json()["error"]
    return text


def binary(*tensors: tuple[str, str, list[int], bytes], **more: Any) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a call with binary tensors."""
    inputs = [
        {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
        for name, datatype, shape, data in tensors
    ]
    head = json.dumps({"inputs": inputs, **more}).encode()
    return head + b"".join(data for *_, data in tensors), {HEADER_LENGTH: str(len(head))}


def test_the_server_and_its_models(server: RunningServer) -> None:
    """Name, version, extensions and limit of the server; names, metadata, settings and readiness of its models."""
    about = server.client.get("/v2").json()
    assert (about["name"], about["parameters"]["max_message_bytes"]) == ("paddlewheel", 100_000_000)
    assert "binary_tensor_data" in about["extensions"]
    assert {"adder", "fp32", "two"} <= set(server.client.get("/v2/models").json()["models"])
    assert server.client.get("/v2/models/adder").json() == {
        "name": "adder",
        "versions": ["1", "2"],
        "platform": "openvino_tensor",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
    }
    config = server.client.get("/v2/models/adder/versions/1/config").json()
    assert (config["name"], config["max_batch_size"], config["backend"]) == ("adder", 8, "openvino")
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}]
    for path, status in (("adder", 200), ("adder/versions/2", 200), ("adder/versions/3", 503), ("broken", 503)):
        response = server.client.get(f"/v2/models/{path}/ready")
        assert response.status_code == status
        assert response.json() == {"name": path.split("/")[0], "ready": status == 200}
    # What KServe's client reads; Triton's looks at the status alone.
    assert server.client.get("/v2/health/live").json() == {"live": True}
    assert server.client.get("/v2/health/ready").json() == {"ready": True}
    assert server.client.get("/v2/models/none").status_code == 404
    assert server.client.get("/v2/models/adder/versions/9").status_code == 404


def test_versions_are_called_by_name_or_the_highest(server: RunningServer) -> None:
    """The answer says which it was."""
    x = tensor([[0.0, 0.5]], name="x")
    for path, version in (("adder", "2"), ("adder/versions/1", "1"), ("adder/versions/2", "2")):
        body = infer(server, path, x, id="mine").json()
        assert (body["id"], body["model_name"], body["model_version"]) == ("mine", "adder", version)
        assert body["outputs"] == [
            {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [int(version), int(version) + 0.5]}
        ]


def test_weights_are_changed_without_a_restart(server: RunningServer) -> None:
    """All calls go where the weights say, and with a sticky key always to the same."""
    assert server.client.put("/v1/models/adder/weights", json={"1": 1}).json() == {"1": 1}
    x = tensor([[0.0, 0.0]], name="x")
    assert infer(server, "adder", x).json()["model_version"] == "1"
    assert server.client.put("/v1/models/adder/weights", json={"1": 50, "2": 50}).status_code == 200
    by_key = {
        infer(server, "adder", x, parameters={"sticky_key": "a caller"}).json()["model_version"] for _ in range(9)
    }
    headers = {"X-Sticky-Key": "a caller"}
    by_key |= {
        server.client.post("/v2/models/adder/infer", json={"inputs": [x]}, headers=headers).json()["model_version"]
    }
    assert len(by_key) == 1
    refused = server.client.put("/v1/models/adder/weights", json={"7": 1})
    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_ARGUMENT")
    assert server.client.put("/v1/models/adder/weights", json={}).json() == {}
    served = server.metric('paddlewheel_requests_total{model="adder",version="1",outcome="OK"}')
    assert served >= 1


@pytest.mark.parametrize("datatype", PORTS)
def test_every_datatype_in_json_and_in_binary(server: RunningServer, datatype: str) -> None:
    """Extreme values come back as they went, either way, and in any mix of both."""
    kind = np.dtype(PORTS[datatype])
    if kind.kind == "b":
        values = np.array([[True, False]])
    else:
        limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
        values = np.array([[limits.min, 0, 1, limits.max]], kind)
    for body, headers in (
        (json.dumps({"inputs": [tensor(values.tolist(), datatype)]}).encode(), {}),
        binary(("input", datatype, list(values.shape), values.tobytes())),
    ):
        for outputs in ([], [{"name": "output", "parameters": {"binary_data": True}}]):
            given = json.loads(body[: int(headers.get(HEADER_LENGTH, len(body)))]) | {"outputs": outputs}
            head = json.dumps(given).encode()
            rest = body[int(headers[HEADER_LENGTH]) :] if headers else b""
            length = {HEADER_LENGTH: str(len(head))} if headers else {}
            response = server.client.post(f"/v2/models/{datatype.lower()}/infer", content=head + rest, headers=length)
            assert response.status_code == 200, response.text
            if outputs:
                data = response.content[int(response.headers[HEADER_LENGTH]) :]
                assert data == values.tobytes()
            else:
                (output,) = response.json()["outputs"]
                assert np.array_equal(np.array(output["data"], kind).reshape(output["shape"]), values)


def test_whole_numbers_are_exact(server: RunningServer) -> None:
    """An integer beyond what a double holds is not rounded."""
    (output,) = infer(server, "int64", tensor([[9007199254740993]], "INT64")).json()["outputs"]
    assert output["data"] == [9007199254740993]


def test_bf16_goes_in_binary_only(server: RunningServer) -> None:
    """There is no JSON number of that kind; the bytes come back as they went."""
    data = b"\x80\x3f\xc0\xff"
    body, headers = binary(("input", "BF16", [1, 2], data), parameters={"binary_data_output": True})
    response = server.client.post("/v2/models/bf16/infer", content=body, headers=headers)
    assert response.content.endswith(data)
    assert "send it as binary" in error(infer(server, "bf16", tensor([[1.0]], "BF16")))


def test_text_and_bytes(server: RunningServer) -> None:
    """Text comes back unescaped; what is no UTF-8 comes as base64, marked, and may be sent so."""
    texts = ["中文😀", "", "a\x00b"]
    response = infer(server, "bytes", tensor([texts], "BYTES"))
    assert response.json()["outputs"][0]["data"] == texts
    assert "中文😀" in response.text
    raw = infer(server, "bytes", tensor([["/w=="]], "BYTES", content_type="base64")).json()["outputs"][0]
    assert (raw["data"], raw["parameters"]) == (["/w=="], {"content_type": "base64"})
    assert "base64" in error(infer(server, "bytes", tensor([["?"]], "BYTES", content_type="base64")))


def test_not_a_number(server: RunningServer) -> None:
    """JSON never holds what JSON is not: it is an error that says how to ask, names if asked for, or binary."""
    refused = infer(server, "nan", tensor([[1.0]]))
    assert refused.status_code == 422
    assert '"nan": "string"' in refused.json()["error"]
    named = infer(server, "nan", tensor([[1.0]]), parameters={"nan": "string"})
    assert named.json()["outputs"][0]["data"] == ["NaN"]
    echoed = infer(server, "fp32", tensor([["Infinity", -0.0]]), parameters={"nan": "string"})
    assert echoed.json()["outputs"][0]["data"] == ["Infinity", -0.0]
    assert math.copysign(1, echoed.json()["outputs"][0]["data"][1]) == -1
    response = infer(server, "nan", tensor([[1.0]]), outputs=[{"name": "output", "parameters": {"binary_data": True}}])
    assert np.isnan(np.frombuffer(response.content[-4:], np.float32)).all()


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        ("uint8", tensor([[256]], "UINT8"), "value 256, which does not fit UINT8"),
        ("uint8", tensor([[-1]], "UINT8"), "value -1, which does not fit UINT8"),
        ("int32", tensor([[1.5]], "INT32"), "fractions or too large numbers in its data; expected whole numbers"),
        ("int32", tensor([[True]], "INT32"), "booleans"),
        ("fp32", tensor([[1e39]]), "does not fit FP32"),
        ("fp32", tensor([["one"]]), "expected numbers"),
        ("bool", tensor([[2]], "BOOL"), "does not fit BOOL"),
        ("uint64", tensor([[1 << 64]], "UINT64"), "too large"),
        ("int64", tensor([[1.0]], "FP32"), "has datatype FP32 .* expected INT64"),
        ("fp32", tensor([[1.0]], name="other"), "takes inputs 'input'; got 'other'"),
        ("fp32", tensor([1.0]), r"shape \[1\]; expected FP32 and \[-1, -1\]"),
        ("fp32", tensor([[1.0, 2.0]], shape=[1, 3]), r"expected \[1, 3\]"),
        ("fp32", tensor([[1.0], [2.0, 3.0]], shape=[1, 3]), "not evenly nested"),
        ("fp32", tensor([[1.0]], "FLOAT"), "datatype 'FLOAT'"),
        ("fp32", tensor([[1.0]], shape=[-1, 1]), "no side below 0"),
        ("fp32", tensor([[1.0]], shape="1"), "needs a datatype and a shape"),
        ("bytes", tensor([[1]], "BYTES"), "each a text"),
        ("fp32", {"datatype": "FP32"}, "without a name"),
        ("fp32", "text", "without a name"),
    ],
)
def test_what_does_not_fit_is_refused(server: RunningServer, model: str, given: Any, expected: str) -> None:
    """The refusal names the tensor, what was expected and what came; nothing is cast or wrapped around."""
    text = error(infer(server, model, given))
    assert re.search(expected, text), text


def test_several_inputs_need_all_of_them(server: RunningServer) -> None:
    """In any order; one that is missing is named, and so are rows that differ."""
    a, b = tensor([[1.0], [2.0]], name="a"), tensor([[3], [4]], "INT64", name="b")
    outputs = infer(server, "two", b, a).json()["outputs"]
    assert [(each["name"], each["data"]) for each in outputs] == [("c", [1, 2]), ("d", [3, 4])]
    (only,) = infer(server, "two", a, b, outputs=[{"name": "d"}]).json()["outputs"]
    assert only["name"] == "d"
    assert "takes inputs 'a', 'b'; got 'a'" in error(infer(server, "two", a))
    assert "one first dimension" in error(infer(server, "two", a, tensor([[3]], "INT64", name="b")))
    assert "no output 'e'" in error(infer(server, "two", a, b, outputs=[{"name": "e"}]))


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b"{", {}, "not JSON"),
        (b"[]", {}, "no 'inputs'"),
        (b'{"inputs": []}', {}, "no 'inputs'"),
        (b'{"inputs": [{}]}', {HEADER_LENGTH: "100"}, "at most 16"),
        (b'{"inputs": [{}]}', {HEADER_LENGTH: "-1"}, "length of the JSON"),
        (b'{"inputs": [{"name": "input"}], "parameters": 1}', {}, "no object"),
        (b'{"inputs": [{"name": "input"}], "parameters": {"priority": "high"}}', {}, "whole numbers"),
    ],
)
def test_a_body_that_is_none(server: RunningServer, body: bytes, headers: dict[str, str], expected: str) -> None:
    """It is said what the body lacks."""
    response = server.client.post("/v2/models/fp32/infer", content=body, headers=headers)
    assert expected in error(response)


def test_binary_sizes_must_be_right(server: RunningServer) -> None:
    """Too few bytes for the shape, more than there are, and some that are left over are refused."""
    for data, shape, expected in (
        (b"1234", [1, 2], "has 4 bytes; expected 8"),
        (b"12345", [1, 1], "5 bytes; expected 4"),
    ):
        body, headers = binary(("input", "FP32", shape, data))
        assert expected in error(server.client.post("/v2/models/fp32/infer", content=body, headers=headers))
    body, headers = binary(("input", "FP32", [1, 1], b"1234"))
    for wrong, expected in ((body + b"5", "1 bytes after its last tensor"), (body[:-1], "where 3 are left")):
        assert expected in error(server.client.post("/v2/models/fp32/infer", content=wrong, headers=headers))


def test_a_packed_body(server: RunningServer) -> None:
    """Packed by gzip it is taken; what claims to be and is not, or unpacks to more than the limit, is refused."""
    body = json.dumps({"inputs": [tensor([[1.0]])]}).encode()
    headers = {"Content-Encoding": "gzip"}
    assert server.client.post("/v2/models/fp32/infer", content=gzip.compress(body), headers=headers).status_code == 200
    assert "is not" in error(server.client.post("/v2/models/fp32/infer", content=body, headers=headers))
    bomb = gzip.compress(bytes(100_000_001))
    assert server.client.post("/v2/models/fp32/infer", content=bomb, headers=headers).status_code == 413


def test_statistics_count_what_was_done(server: RunningServer) -> None:
    """Rows, batches, successes and failures of one version, and their times."""

    def read() -> dict[str, Any]:
        (found,) = server.client.get("/v2/models/two/stats").json()["model_stats"]
        return dict(found)

    before = read()
    a, b = tensor([[1.0], [2.0]], name="a"), tensor([[3], [4]], "INT64", name="b")
    assert infer(server, "two", a, b).status_code == 200
    after = read()
    assert after["inference_count"] == before["inference_count"] + 2
    assert after["execution_count"] == before["execution_count"] + 1
    assert after["inference_stats"]["success"]["count"] == before["inference_stats"]["success"]["count"] + 1
    assert after["inference_stats"]["success"]["ns"] > before["inference_stats"]["success"]["ns"]
    assert {each["batch_size"] for each in after["batch_stats"]} == {2}
    everything = server.client.get("/v2/models/stats").json()["model_stats"]
    assert {(each["name"], each["version"]) for each in everything} >= {("adder", "1"), ("adder", "2"), ("two", "1")}


def test_the_repository(server: RunningServer) -> None:
    """Its index has every version with its state; a broken one says why; unloaded is not ready; loaded again it is."""
    index = {(entry["name"], entry["version"]): entry for entry in server.client.post("/v2/repository/index").json()}
    assert index["adder", "1"]["state"] == index["adder", "2"]["state"] == "READY"
    assert index["broken", "1"]["state"] == "UNAVAILABLE"
    refused = server.client.post("/v2/repository/models/broken/load")
    assert refused.status_code == 503
    assert "is empty" in refused.json()["error"]
    ready = server.client.post("/v2/repository/index", json={"ready": True}).json()
    assert {entry["state"] for entry in ready} == {"READY"}
    assert server.client.get("/v2/health/ready").is_success, "what never served takes nothing away"
    assert server.client.post("/v2/repository/models/adder/unload").status_code == 200
    assert server.client.get("/v2/models/adder/ready").status_code == 503
    assert infer(server, "adder", tensor([[0.0, 0.0]], name="x")).status_code == 503
    assert server.client.post("/v2/repository/models/adder/load").status_code == 200
    assert infer(server, "adder", tensor([[0.0, 0.0]], name="x")).status_code == 200
    for name in ("../adder", "..%2fadder", "none", "a" * 300, "CON", "中文"):
        assert server.client.post(f"/v2/repository/models/{name}/load").status_code == 404
