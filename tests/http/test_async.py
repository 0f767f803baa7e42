"""The contract of ``/ocr/async`` and ``/ocr/result/{id}``."""

from __future__ import annotations

import uuid

from conftest import RunningServer, StartServer
from paddlewheel.http.schemas import OcrPage, PendingCall, SubmittedCall
from waiting import wait_for

SHORT_LIVED = """
[jobs]
ttl_s = 0.5
[pool.default]
workers = 1
nice = 0
[models.ocr]
pack = "ppocrv6-tiny"
"""


def submit(server: RunningServer, picture: bytes) -> SubmittedCall:
    """Submit a picture and check the answer that says so."""
    response = server.client.post("/ocr/async", content=picture)
    assert response.status_code == 202, response.text
    call = SubmittedCall.model_validate(response.json())
    assert response.headers["location"] == call.status_url == f"/ocr/result/{call.request_id}"
    assert int(response.headers["retry-after"]) >= 1
    assert uuid.UUID(call.request_id).version == 7
    return call


def test_result_is_the_body_of_the_direct_call(server: RunningServer, card: bytes) -> None:
    """202 while it runs, then 200 with the same body as `POST /ocr`, as often as it is asked for."""
    call = submit(server, card)
    pending = server.client.get(call.status_url)
    if pending.status_code == 202:
        PendingCall.model_validate(pending.json())
        assert "retry-after" in pending.headers
    wait_for(lambda: server.client.get(call.status_url).status_code == 200, 30, "the result")
    page = OcrPage.model_validate(server.client.get(call.status_url).json())
    direct = OcrPage.model_validate(server.client.post("/ocr", content=card).json())
    assert page.request_id == call.request_id
    assert page.text == direct.text
    assert [line.box for line in page.lines] == [line.box for line in direct.lines]


def test_a_call_that_fails_keeps_its_own_error(server: RunningServer, card: bytes) -> None:
    """What cannot be decoded is accepted by its header, and the result is the error of its own."""
    call = submit(server, card[:5000])
    wait_for(lambda: server.client.get(call.status_url).status_code != 202, 30, "the error")
    failed = server.client.get(call.status_url)
    assert failed.status_code == 422
    assert "truncated" in failed.json()["detail"]


def test_what_is_wrong_from_the_start_is_refused_at_once(server: RunningServer) -> None:
    """No job is made of a request that can be seen to be wrong."""
    assert server.client.post("/ocr/async", content=b"text").status_code == 415
    assert server.client.post("/ocr/async?colour=red", content=b"text").status_code == 400


def test_unknown_and_expired_are_told_apart(start_server: StartServer, card: bytes) -> None:
    """A result past its time to live is 410, one that never was 404."""
    server = start_server(SHORT_LIVED)
    call = submit(server, card)
    wait_for(lambda: server.client.get(call.status_url).status_code == 410, 30, "the end of the time to live")
    assert server.client.get(call.status_url).json()["code"] == "EXPIRED"
    unknown = server.client.get(f"/ocr/result/{uuid.uuid4()}")
    assert unknown.status_code == 404
    assert unknown.json()["code"] == "NOT_FOUND"
