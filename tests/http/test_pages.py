"""Probes, metrics, the page of documentation, and errors under ``/v2``."""

from __future__ import annotations

import re

from conftest import RunningServer


def test_probes(server: RunningServer) -> None:
    """A server with its models loaded is alive and ready, and says which models it has."""
    assert server.client.get("/livez").text == "ok\n"
    ready = server.client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {"ready": True, "draining": False, "models": {"ocr": {"state": "ready"}}}
    assert server.client.get("/v2/health/ready").status_code == 200
    assert server.client.get("/v2/models/ocr/ready").status_code == 200


def test_metrics_count_what_was_done(server: RunningServer, card: bytes) -> None:
    """A request is counted under its outcome, its stages and its route."""
    before = server.metric('paddlewheel_requests_total{model="ocr",outcome="OK"}')
    assert server.client.post("/ocr", content=card).status_code == 200
    assert server.metric('paddlewheel_requests_total{model="ocr",outcome="OK"}') == before + 1
    text = server.client.get("/metrics").text
    for name in (
        "paddlewheel_queue_depth",
        "paddlewheel_queue_wait_seconds_count",
        "paddlewheel_batch_size_count",
        'paddlewheel_stage_seconds_count{model="ocr",stage="recognition",version="ppocrv6-tiny"}',
        'paddlewheel_workers{pool="default",state="idle"} 2.0',
        "paddlewheel_worker_rss_bytes",
        'http_server_request_duration_seconds_count{method="POST",route="/ocr",status="200"}',
    ):
        assert name in text, name


def test_documentation_needs_no_other_server(server: RunningServer) -> None:
    """The page loads nothing from elsewhere, and the description names every route."""
    page = server.client.get("/docs")
    assert page.status_code == 200
    links = re.findall(r"""(?:src|href)=["']([^"']+)""", page.text)
    assert links, "scripts and styles are files of their own"
    for link in links:
        assert link.startswith(("/", server.url)), link
        assert server.client.get(link).status_code == 200
    assert {"/ocr", "/ocr/async", "/ocr/result/{request_id}", "/livez"} <= server.client.get("/openapi.json").json()[
        "paths"
    ].keys()


def test_protocol_errors_have_the_protocol_shape(server: RunningServer) -> None:
    """Under /v2 an error is {"error": text}, with the same status."""
    tensor = {"name": "input", "shape": [1], "datatype": "FP32", "data": [1]}
    unknown = server.client.post("/v2/models/nothing/infer", json={"inputs": [tensor]})
    assert unknown.status_code == 404
    assert unknown.json().keys() == {"error"}
    assert "ocr" in unknown.json()["error"]
    assert server.client.post("/v2/models/ocr/infer", content=b"{").status_code == 400
