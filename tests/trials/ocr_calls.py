"""Calls of ``/ocr`` that the trials of pictures and of OCR share, and the settings of their servers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx2

from conftest import RunningServer

SETTINGS = """
[pool.default]
workers = 2
nice = 0
[models.ocr]
pack = "ppocrv6-tiny"
precision = "fp32"
batching = {{ max_batch_size = 8 }}
[limits]
max_pixels = {pixels}
"""


def post(server: RunningServer, picture: bytes) -> httpx2.Response:
    """Send a picture as the body."""
    return server.client.post("/ocr", content=picture)


def text_of(response: httpx2.Response) -> str:
    """Return the text without spaces."""
    assert response.status_code == 200, response.text
    text: str = response.json()["text"]
    return text.replace(" ", "")


def together(server: RunningServer, pictures: list[bytes]) -> list[httpx2.Response]:
    """Send all `pictures` at once, so that they wait and share batches."""
    with ThreadPoolExecutor(len(pictures)) as senders:
        return list(senders.map(lambda picture: post(server, picture), pictures))
