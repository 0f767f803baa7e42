"""``paddlewheel serve``: run the server, and say in a few lines what it serves and where."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from paddlewheel import __version__
from paddlewheel.cli.progress import shown
from paddlewheel.cli.settings import ConfigFile, Overrides, errors_in_one_line, read_settings
from paddlewheel.config import Settings
from paddlewheel.repository import engines_of
from paddlewheel.telemetry.logs import configure_logs
from paddlewheel.workers import available_cores, fork_server

if TYPE_CHECKING:
    from paddlewheel.service import Service


def serve(
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="HTTP port; 0 takes a free one.")] = None,
    grpc_port: Annotated[str | None, typer.Option(help="gRPC port; 0 takes a free one, off serves none.")] = None,
    model_repository: Annotated[Path | None, typer.Option(help="Folder with models: <model>/<version>/.")] = None,
    model_control: Annotated[str | None, typer.Option(help="none, explicit or poll: when models are loaded.")] = None,
    workers: Annotated[str | None, typer.Option(help="Worker processes: a number, or auto.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or gpu:<id>.")] = None,
    overrides: Overrides = None,
) -> None:
    """Serve the configured models (by default, OCR)."""
    console = Console(stderr=True)
    flags = {
        "--host": ("server.host", host),
        "--port": ("server.port", port),
        "--grpc-port": ("server.grpc_port", grpc_port),
        "--model-repository": ("repository.path", model_repository),
        "--model-control": ("repository.control", model_control),
        "--workers": ("pool.default.workers", workers),
        "--device": ("pool.default.device", device),
    }
    with errors_in_one_line(), ExitStack() as running:
        settings = read_settings(config, overrides, flags).settings
        configure_logs(settings.telemetry.log_level, settings.telemetry.log_format)
        # The engines are imported there while the web framework is imported here.
        running.enter_context(fork_server(engines_of(settings)))

        from paddlewheel.server import serve as run_server  # noqa: PLC0415  # it takes as long
        from paddlewheel.server import take_port  # noqa: PLC0415

        listener = take_port(settings.server.host, settings.server.port)
        address = Address(*listener.getsockname()[:2])
        bars = running.enter_context(ExitStack())

        def on_listening(grpc_port: int | None) -> None:
            nonlocal address
            address = replace(address, grpc_port=grpc_port)
            console.print(
                f"[bold]paddlewheel {__version__}[/] is starting on {address}", highlight=False, soft_wrap=True
            )

        def on_ready(service: Service) -> None:
            bars.close()
            _summarise(console, service, address)

        progress = bars.enter_context(shown("models"))
        serving = run_server(settings, listener, on_listening=on_listening, on_ready=on_ready, progress=progress)
        status = uvloop.run(serving)
    raise typer.Exit(status)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens."""

    host: str
    port: int
    grpc_port: int | None = None

    @property
    def http(self) -> str:
        """Return the base of its addresses."""
        return f"http://{self._with(self.port)}"

    def __str__(self) -> str:
        """Return both addresses, for people."""
        return self.http if self.grpc_port is None else f"{self.http}    grpc {self._with(self.grpc_port)}"

    def _with(self, port: int) -> str:
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def _described(parts: dict[str, str]) -> str:
    """Return what holds for every network of a model, or for each."""
    same = set(parts.values())
    return same.pop() if len(same) == 1 else "; ".join(f"{part} {value}" for part, value in parts.items())


def _summarise(console: Console, service: Service, address: Address) -> None:
    """Print what is served: models with engine and precision, workers, cores, addresses."""
    settings: Settings = service.settings
    table = Table(box=None, pad_edge=False, show_header=False)
    for served in service.models.served():
        spec = served.spec
        described = _described(served.state.description)
        table.add_row("model", f"[bold]{spec.name}[/]", spec.version, spec.engine, described)
    for name, error in service.models.failures.items():
        table.add_row("[red]failed[/]", f"[bold]{name}[/]", error.detail)
    console.print(table, highlight=False, soft_wrap=True)
    for name, pool in service.models.pools.items():
        threads = f"{pool.threads[0]} thread{'s' * (pool.threads[0] > 1)} each"
        alone = f", {pool.threads[-1]} for a request that is alone" if len(pool.threads) > 1 else ""
        device = settings.pool[name].device
        console.print(
            f"pool   {name}: {pool.workers} workers on {device}, {available_cores()} cores, {threads}{alone}",
            highlight=False,
            soft_wrap=True,
        )
    base = address.http
    console.print(f"ready  {address}    docs {base}/docs    metrics {base}/metrics", highlight=False, soft_wrap=True)
    if not service.ready:
        console.print("[red]Not every model could be loaded: /readyz stays at 503.[/]", highlight=False, soft_wrap=True)
