"""How a pull looks on standard error: a bar on a terminal, a line a step elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as ProgressBars

from paddlewheel.catalog import Progress, Step


@contextmanager
def shown(name: str) -> Iterator[Progress]:
    """Give a callback that draws a bar on a terminal, and elsewhere prints each new step once."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _printer(name)
        return
    columns = (TextColumn("{task.description}"), BarColumn(20), DownloadColumn(), TransferSpeedColumn())
    with ProgressBars(*columns, console=console, transient=True) as bars:
        task = bars.add_task(name, total=None)

        def draw(step: Step) -> None:
            if step.total is None:  # the bar stays as it is
                bars.update(task, description=step.text)
            else:
                bars.update(task, description=step.text, completed=step.done, total=step.total)

        yield draw


def _printer(name: str) -> Progress:
    last = ""

    def say(step: Step) -> None:
        nonlocal last
        if step.text != last:
            last = step.text
            typer.echo(f"{name}: {step.text}", err=True)

    return say
