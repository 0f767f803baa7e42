"""Trials start many servers; each is stopped after the module that it was started for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conftest import RunningServer, StartServer


@pytest.fixture(scope="module")
def start_server(start_server: StartServer) -> Iterator[StartServer]:
    """Return the function that starts servers; those that still run are stopped at the end of the module."""
    started: list[RunningServer] = []

    def start(*args: Any, **options: Any) -> RunningServer:
        started.append(start_server(*args, **options))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            assert server.stop() == 0
