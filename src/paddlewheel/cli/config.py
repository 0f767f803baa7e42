"""``paddlewheel config``: the settings that hold, and where each came from."""

from __future__ import annotations

import typer

from paddlewheel.cli.settings import ConfigFile, Overrides, errors_in_one_line, read_settings


def show_config(config: ConfigFile = None, overrides: Overrides = None) -> None:
    """Print every setting, its value, and the source that set it."""
    with errors_in_one_line():
        for key, value, source in read_settings(config, overrides, {}).described():
            typer.echo(f"{key} = {value}  # {source}")
