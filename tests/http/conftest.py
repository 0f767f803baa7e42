"""The server that the tests of the HTTP edge share."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import RunningServer, StartServer

SETTINGS = """
[limits]
max_body_bytes = 3000000
max_pixels = 20000000
[pool.default]
workers = 2
nice = 0
[models.ocr]
pack = "ppocrv6-tiny"
precision = "fp32"
"""


@pytest.fixture(scope="session")
def server(start_server: StartServer) -> RunningServer:
    """Return a server with the small pack and limits that are quick to reach."""
    return start_server(SETTINGS)


@pytest.fixture(scope="session")
def card() -> bytes:
    """Return the sample card: 1024x646, seven lines."""
    return (Path(__file__).parent.parent / "samples" / "card.jpg").read_bytes()
