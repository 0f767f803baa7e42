"""A package index of our own: real wheels, served over HTTP to the real pip, which can be held in mid-answer."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event

import pytest

from paddlewheel.catalog import DetectionSettings, Network, Pack, PackFile, Source
from paddlewheel.catalog.pack import Dictionary


@dataclass
class Index:
    """Wheels by file name. `held` names one that is answered only half until `release` is set."""

    wheels: dict[str, bytes] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    held: str | None = None
    half_sent: Event = field(default_factory=Event)
    release: Event = field(default_factory=Event)

    def add(self, package: str, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
        """Build the wheel `package` 1.0 out of `members`."""
        path, info = f"{package}-1.0-py3-none-any.whl", f"{package}-1.0.dist-info"
        self.wheels[path] = _zip(
            {
                f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".encode(),
                f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                f"{info}/RECORD": b"",
                **members,
            },
            compression,
        )


def _zip(members: dict[str, bytes], compression: int) -> bytes:
    import io

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _handler(index: Index) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/").split("#")[0]
            page = "".join(f'<a href="/{wheel}">{wheel}</a>' for wheel in index.wheels).encode()
            body = page if name == "" else index.wheels[name]
            index.asked[name] += 1
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if name == "" else "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            half = len(body) // 2 if name == index.held else len(body)
            self.wfile.write(body[:half])
            if half < len(body):
                index.half_sent.set()
                index.release.wait(60)
                self.wfile.write(body[half:])

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """Serve the only index that pip uses in this test."""
    made = Index()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # killed clients are part of the tests
    for variable in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", f"http://127.0.0.1:{server.server_port}/")
    with ThreadPoolExecutor(1) as executor:
        executor.submit(server.serve_forever, 0.05)
        yield made
        made.release.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def make_pack(index: Index) -> Callable[..., Pack]:
    """Return a function that publishes the wheel `alpha`, or `alpha` and `beta`, and describes the pack in them."""

    def make(detection: bytes = b"detection" * 1000, compression: int = zipfile.ZIP_STORED, *, wheels: int = 1) -> Pack:
        files = {
            "detection.onnx": detection,
            "orientation.onnx": b"orientation" * 500,
            "recognition.onnx": b"recognition" * 3000,
            "keys.txt": "a\n\u3000\nb\u0085\n人\n🇨🇳".encode(),
        }
        described = {
            name: PackFile(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()
        }
        names = list(files)
        shared_out = {"alpha": names} if wheels == 1 else {"alpha": names[2:], "beta": names[:2]}
        for package, names in shared_out.items():
            index.add(package, {f"{package}/{name}": files[name] for name in names}, compression)
        return Pack(
            name="letters",
            description="made for tests",
            licence="Apache-2.0",
            sources=tuple(
                Source(package, "1.0", 100_000, {f"{package}/{name}": described[name] for name in names})
                for package, names in shared_out.items()
            ),
            networks={role: Network("onnx", f"{role}.onnx") for role in ("detection", "orientation", "recognition")},
            detection=DetectionSettings((0.5,) * 3, (0.5,) * 3, 0.3, 0.5, 1.6, dilation=True),
            dictionary=Dictionary(
                PackFile("dictionary.txt", described["keys.txt"].size, described["keys.txt"].sha256), "keys.txt"
            ),
        )

    return make


@pytest.fixture(scope="session")
def real_models_dir() -> Path:
    """Where tests of real packs keep them between runs."""
    return Path(os.environ.get("PADDLEWHEEL_MODELS_DIR") or Path(__file__).parents[2] / ".models")
