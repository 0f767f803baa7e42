"""Flags that every command with settings has, and how they override the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from paddlewheel.config import LoadedSettings, load_settings
from paddlewheel.errors import ConfigurationError, PaddlewheelError

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Settings file; default: ./paddlewheel.toml, if any.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Set any setting; may be repeated.")
]


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Print an error of ours as a line on stderr, and end with status 1."""
    try:
        yield
    except PaddlewheelError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {error.detail}", highlight=False)
        raise typer.Exit(1) from None


def read_settings(
    config: Path | None, overrides: Sequence[str] | None, flags: Mapping[str, tuple[str, Any]]
) -> LoadedSettings:
    """Load the settings; `flags` maps a flag's name to the setting it sets and its value, None if it was not given."""
    given = [(key, flag, value) for flag, (key, value) in flags.items() if value is not None]
    for each in overrides or ():
        key, equals, value = each.partition("=")
        if not equals:
            raise ConfigurationError(f"--set {each}: expected section.field=value.")
        given.append((key, "--set", value))
    return load_settings(config, given)
