"""The contract of ``/ocr``: inputs, answers, parameters, deadlines."""

from __future__ import annotations

import base64
import re
import socket
from typing import Any

import httpx2
import pytest

from conftest import RunningServer
from paddlewheel.http.schemas import OcrPage, Problem

LINES = [
    "姓名样例",
    "性别女",
    "民族汉",
    "出生1990年1月1日",
    "住址示例省样本市测试区",
    "幸福路100号2单元301室",
    "公民身份号码000000199001010000",
]


def texts(response: httpx2.Response) -> list[str]:
    """Return the lines of an answer, without spaces, after checking its shape."""
    assert response.status_code == 200, response.text
    page = OcrPage.model_validate(response.json())
    assert page.text == "\n".join(line.text for line in page.lines)
    return [line.text.replace(" ", "") for line in page.lines]


def problem(response: httpx2.Response, status: int) -> Problem:
    """Return the problem of an answer with `status`, after checking what each problem has."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = Problem.model_validate(response.json())
    assert found.status == status
    assert found.request_id == response.headers["x-request-id"]
    return found


def send_multipart(client: httpx2.Client, picture: bytes, **parameters: str) -> httpx2.Response:
    """Send a form with the picture as `image`."""
    return client.post("/ocr", files={"image": ("x.png", picture, "text/plain")}, data=parameters)


def send_base64(client: httpx2.Client, picture: bytes, **parameters: Any) -> httpx2.Response:
    """Send JSON with base64."""
    return client.post("/ocr", json={"image": base64.b64encode(picture).decode(), **parameters})


def send_data_uri(client: httpx2.Client, picture: bytes, **parameters: Any) -> httpx2.Response:
    """Send JSON with a data: URI."""
    return client.post("/ocr", json={"image": f"data:;base64,{base64.b64encode(picture).decode()}", **parameters})


def send_raw(client: httpx2.Client, picture: bytes, **parameters: Any) -> httpx2.Response:
    """Send the file itself, with the content type that curl gives to --data-binary."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    return client.post("/ocr", content=picture, headers=headers, params=parameters)


WAYS = [send_multipart, send_base64, send_data_uri, send_raw]


@pytest.mark.parametrize("send", WAYS)
def test_every_way_in_gives_the_same_answer(server: RunningServer, card: bytes, send: Any) -> None:
    """A form, JSON and the bare file are read alike, whatever type they claim."""
    response = send(server.client, card)
    assert texts(response) == LINES
    body = response.json()
    assert (body["width"], body["height"], body["version"]) == (1024, 646, "ppocrv6-tiny")
    assert {"queue", "decode", "detection", "orientation", "recognition", "total"} <= body["timing_ms"].keys()
    assert "姓名" in response.text, "text is UTF-8, not escaped"
    assert response.headers["content-type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize("send", WAYS)
def test_parameters_have_the_same_names_everywhere(server: RunningServer, card: bytes, send: Any) -> None:
    """In the form, the JSON body or the query, parameters do the same, and are refused alike."""
    boxes = send(server.client, card, boxes_only="true")
    assert texts(boxes) == [""] * 7
    assert all(line["box"] for line in boxes.json()["lines"])
    text = send(server.client, card, text_only="true")
    assert texts(text) == LINES
    assert not any("box" in line for line in text.json()["lines"])
    assert texts(send(server.client, card, score_threshold="1.0")) == []
    assert "det_limit_side" in problem(send(server.client, card, det_limit_side="7"), 400).detail
    assert "no parameter 'colour'" in problem(send(server.client, card, colour="red"), 400).detail


@pytest.mark.parametrize(
    ("name", "shown"),
    [("照片.jpg", "raw"), ("../../x.png", "path"), ("a\r\nb.png", "CR LF"), ("x" * 5000, "long"), ("", "empty")],
)
def test_file_names_are_only_labels(server: RunningServer, card: bytes, name: str, shown: str) -> None:
    """IMG-10: whatever a file is called, it is an upload."""
    quoted = name.encode("gbk").replace(b"\r", b"%0D").replace(b"\n", b"%0A")
    body = (
        b'--edge\r\nContent-Disposition: form-data; name="file"; filename="' + quoted + b'"\r\n'
        b"Content-Type: image/jpeg\r\n\r\n" + card + b"\r\n--edge--\r\n"
    )
    headers = {"content-type": "multipart/form-data; boundary=edge"}
    assert texts(server.client.post("/ocr", content=body, headers=headers)) == LINES, shown


@pytest.mark.parametrize(
    ("kind", "body", "status", "said"),
    [
        ("application/json", b"{", 400, "not JSON"),
        ("application/json", b"[]", 400, "no object"),
        ("application/json", b"{}", 400, "'image' is missing"),
        ("application/json", b'{"image": "@@"}', 400, "not base64"),
        ("application/json", b'{"image": "data:image/png,xx"}', 400, "without base64"),
        ("application/json", b'{"url": "http://127.0.0.1/"}', 400, "not fetched"),
        ("multipart/form-data", b"x", 400, "form"),
        ("multipart/form-data; boundary=b", b"--b--\r\n", 400, "expected one"),
        ("image/png", b"", 400, "0 bytes"),
        ("image/png", b"hello, this is text", 415, "text"),
        ("image/png", b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "SVG"),
        ("image/png", b"\x89PNG\r\n\x1a\n" + b"\0" * 20, 422, "PNG"),
    ],
)
def test_bad_input_is_named(server: RunningServer, kind: str, body: bytes, status: int, said: str) -> None:
    """Each mistake has its own status, and the text says what was found and what would be right."""
    found = problem(server.client.post("/ocr", content=body, headers={"content-type": kind}), status)
    assert said in found.detail
    assert found.code == "INVALID_ARGUMENT"
    assert not found.retryable


def test_request_ids(server: RunningServer, card: bytes) -> None:
    """A well-formed id is taken, any other replaced; every answer carries one."""
    mine = send_multipart(server.client, card).headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", mine)
    taken = server.client.post("/ocr", content=card, headers={"X-Request-Id": "order-17.a_b"})
    assert taken.headers["x-request-id"] == taken.json()["request_id"] == "order-17.a_b"
    for bad in ("a b", "x" * 129, "<script>"):
        assert server.client.get("/livez", headers={"X-Request-Id": bad}).headers["x-request-id"] != bad
    assert problem(server.client.get("/nowhere"), 404).code == "NOT_FOUND"
    assert problem(server.client.get("/ocr"), 405).instance == "/ocr"


def test_deadlines(server: RunningServer, card: bytes) -> None:
    """A deadline that passes is 504, one that makes no sense 400."""
    late = server.client.post("/ocr", content=card, headers={"X-Request-Timeout": "0.001"})
    assert problem(late, 504).code == "DEADLINE_EXCEEDED"
    for wrong in ("0", "-1", "soon", "nan", "inf", "1e9"):
        assert (
            "X-Request-Timeout"
            in problem(server.client.post("/ocr", content=card, headers={"X-Request-Timeout": wrong}), 400).detail
        )


def test_a_body_over_the_limit_is_not_read(server: RunningServer) -> None:
    """A declared size is refused before the first byte is sent; an undeclared one as soon as it is over."""
    answer = _raw_exchange(server, b"POST /ocr HTTP/1.1\r\nHost: x\r\nContent-Length: 3000001\r\n\r\n")
    assert b" 413 " in answer.splitlines()[0]
    assert b"limits.max_body_bytes" in answer
    assert b"connection: close" in answer.lower()
    chunked = server.client.post("/ocr", content=iter([b"x" * 500_000] * 7))
    assert "limits.max_body_bytes" in problem(chunked, 413).detail


def _raw_exchange(server: RunningServer, request: bytes) -> bytes:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))
