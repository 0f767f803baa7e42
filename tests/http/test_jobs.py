"""``/v1/jobs`` and ``Prefer: respond-async``, over a real server."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import RunningServer, StartServer
from waiting import wait_for

PICTURE = Path(__file__).parent.parent / "samples" / "card.jpg"


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> RunningServer:
    """Return a server with one worker, OCR, and a model that takes as long as its input says."""
    return start_server("""
[pool.default]
workers = 1
nice = 0
[models.ocr]
pack = "ppocrv6-tiny"
[models.slow]
pipeline = "tensor"
engine = "echo"
batching = { max_batch_size = 1 }
engine_options = { delay_from_input = true, fail_on = 0.75 }
""")


def order(seconds: float, **fields: Any) -> dict[str, Any]:
    """Return a job of the slow model."""
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 1], "data": [seconds]}
    return {"model": "slow", "input": {"inputs": [tensor]}, **fields}


def made(server: RunningServer, body: dict[str, Any]) -> str:
    """Make a job and return its address."""
    response = server.client.post("/v1/jobs", json=body)
    assert response.status_code == 202, response.text
    assert response.headers["location"] == response.json()["status_url"] == f"/v1/jobs/{response.json()['id']}"
    assert response.json()["status"] == "queued"
    return str(response.headers["location"])


def waited(server: RunningServer, url: str, seconds: int = 30) -> dict[str, Any]:
    """Return a job as it is after a long poll."""
    response = server.client.get(url, headers={"Prefer": f"wait={seconds}"})
    assert response.headers["preference-applied"] == f"wait={seconds}"
    job: dict[str, Any] = response.json()
    return job


def test_a_job_from_its_making_to_its_result(server: RunningServer) -> None:
    """Made, waited for, done: with its times, attempts, metadata, and the answer of the synchronous call."""
    job = waited(server, made(server, order(0.2, metadata={"order": 7}, ttl_s=60)))
    assert (job["status"], job["model"], job["attempts"], job["error"]) == ("succeeded", "slow", 1, None)
    assert job["progress"] == {"done": 1, "total": 1}
    assert job["metadata"] == {"order": 7}
    assert job["created_at"] <= job["started_at"] < job["completed_at"] < job["expires_at"]
    (output,) = job["result"]["outputs"]
    assert output["data"] == [pytest.approx(0.2)]


def test_a_long_poll_ends_when_the_job_does_or_its_time_is_over(server: RunningServer) -> None:
    """It comes back soon after the job is over, and as it stands when the caller would wait no longer."""
    url = made(server, order(1.5))
    began = time.monotonic()
    assert waited(server, url, 1)["status"] == "running"
    assert 0.9 < time.monotonic() - began < 1.3
    assert waited(server, url)["status"] == "succeeded"
    assert time.monotonic() - began < 2.2


def test_pictures(server: RunningServer) -> None:
    """A picture as a job, and as a synchronous call that would rather be one."""
    image = base64.b64encode(PICTURE.read_bytes()).decode()
    job = waited(server, made(server, {"model": "ocr", "input": {"image": image}, "parameters": {"text_only": True}}))
    assert len(job["result"]["lines"]) == 7
    assert "box" not in job["result"]["lines"][0]
    response = server.client.post("/ocr", content=PICTURE.read_bytes(), headers={"Prefer": "respond-async"})
    assert (response.status_code, response.headers["preference-applied"]) == (202, "respond-async")
    assert len(waited(server, response.headers["location"])["result"]["lines"]) == 7


def events(server: RunningServer, url: str, last_id: str | None = None) -> list[dict[str, str]]:
    """Return the events of a job until their stream ends."""
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    response = server.client.get(f"{url}/events", headers=headers)
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = [block for block in response.text.split("\n\n") if block and not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]


def test_events(server: RunningServer) -> None:
    """Each state once, the last with the result; who comes back with an event's id hears what came after it."""
    occupied, url = made(server, order(1)), made(server, order(0.5))
    seen = events(server, url)
    assert [event["event"] for event in seen] == ["status", "status", "completed"]
    assert [json.loads(event["data"])["status"] for event in seen] == ["queued", "running", "succeeded"]
    assert json.loads(seen[-1]["data"])["result"]["outputs"][0]["data"] == [0.5]
    assert [event["event"] for event in events(server, url, seen[0]["id"])] == ["completed"]
    assert events(server, url, seen[-1]["id"]) == []
    waited(server, occupied)


def test_any_synchronous_call_may_become_a_job(server: RunningServer) -> None:
    """The Open Inference Protocol's call with the header."""
    headers = {"Prefer": "wait=1, respond-async"}
    response = server.client.post("/v2/models/slow/infer", json=order(0.1)["input"], headers=headers)
    assert response.status_code == 202
    assert waited(server, response.headers["location"])["result"]["outputs"][0]["data"] == [pytest.approx(0.1)]


def test_cancel(server: RunningServer) -> None:
    """Running or waiting, it ends at once; what is over stays as it is; the place is free for the next."""
    running, waiting = made(server, order(5)), made(server, order(0))
    wait_for(lambda: server.client.get(running).json()["status"] == "running", 5, "it runs")
    assert server.client.get(waiting).json()["status"] == "queued"
    began = time.monotonic()
    assert server.client.post(f"{waiting}/cancel").json()["status"] == "cancelled"
    assert server.client.delete(running).json()["status"] == "cancelled"
    assert time.monotonic() - began < 1
    done = waited(server, made(server, order(0)))
    assert server.client.delete(f"/v1/jobs/{done['id']}").json()["status"] == "succeeded"
    assert server.client.get(running).json()["result"] is None


def test_retry(server: RunningServer) -> None:
    """One that failed says why and can be run again, with its attempts from the start; one that succeeded cannot."""
    url = made(server, order(0.75))
    failed = waited(server, url)
    assert (failed["status"], failed["error"]["code"], failed["result"]) == ("failed", "INTERNAL", None)
    assert server.client.post(f"{url}/retry").json()["status"] == "queued"
    again = waited(server, url)
    assert (again["status"], again["attempts"]) == ("failed", 1)
    good = made(server, order(0))
    waited(server, good)
    refused = server.client.post(f"{good}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")


def test_pages(server: RunningServer) -> None:
    """The newest first; the cursor leads to the rest."""
    urls = [made(server, order(0)) for _ in range(5)]
    for url in urls:
        waited(server, url)
    first = server.client.get("/v1/jobs", params={"limit": 3, "model": "slow", "status": "succeeded"}).json()
    rest = server.client.get("/v1/jobs", params={"limit": 3, "model": "slow", "cursor": first["next"]}).json()
    ids = [job["id"] for job in first["jobs"] + rest["jobs"]]
    assert ids[:5] == [url.removeprefix("/v1/jobs/") for url in reversed(urls)]
    assert server.client.get("/v1/jobs", params={"status": "none"}).status_code == 400


def test_an_idempotency_key_makes_one_job(server: RunningServer) -> None:
    """The same key and body give the same job, while it waits and when it is over; another body is refused."""
    headers = {"Idempotency-Key": "order 17"}
    answers = [server.client.post("/v1/jobs", json=order(0.1), headers=headers) for _ in range(3)]
    (url,) = {answer.headers["location"] for answer in answers}
    waited(server, url)
    late = server.client.post("/v1/jobs", json=order(0.1), headers=headers)
    assert (late.status_code, late.json()["status"], late.headers["location"]) == (202, "succeeded", url)
    other = server.client.post("/v1/jobs", json=order(0.2), headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "CONFLICT")
    assert server.client.post("/v1/jobs", json=order(0), headers={"Idempotency-Key": "x" * 256}).status_code == 400
    picture = PICTURE.read_bytes()
    pictures = [server.client.post("/ocr/async", content=picture, headers={"Idempotency-Key": "p"}) for _ in range(2)]
    assert len({answer.json()["request_id"] for answer in pictures}) == 1


def test_a_deadline(server: RunningServer) -> None:
    """A job that cannot begin in time fails then, while another still runs."""
    long = made(server, order(3))
    began = time.monotonic()
    late = waited(server, made(server, order(0, deadline_s=0.5)))
    assert (late["status"], late["error"]["code"]) == ("failed", "DEADLINE_EXCEEDED")
    assert time.monotonic() - began < 1.5
    server.client.delete(long)


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"model": "none", "input": {}}, 404, "no model 'none'"),
        ({"model": "slow", "input": {}}, 400, "'inputs'"),
        ({"model": "ocr", "input": {"image": "%"}}, 400, "not base64"),
        ({"model": "ocr", "input": {"image": "aGVsbG8gd29ybGQhISE="}}, 415, "picture"),
        (order(0, ttl_s=-1), 400, "ttl_s"),
        ({"input": {}}, 400, "model"),
    ],
)
def test_bad_orders(server: RunningServer, body: dict[str, Any], status: int, text: str) -> None:
    """What is wrong is said before there is a job."""
    response = server.client.post("/v1/jobs", json=body)
    assert response.status_code == status, response.text
    assert text in response.json()["detail"]


def test_an_unknown_job(server: RunningServer) -> None:
    """404 for everything about it."""
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("POST", "/retry")):
        assert server.client.request(method, f"/v1/jobs/none{path}").status_code == 404
