"""``paddlewheel ocr``: read the text in pictures, without a server.

Results go to standard output or to ``--out``, in the order of the arguments; a progress bar and errors go to standard
error. A picture that fails does not keep the others from being read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import orjson
import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from paddlewheel.cli.progress import shown
from paddlewheel.cli.reading import MODEL, Read, read_all
from paddlewheel.cli.settings import ConfigFile, Overrides, errors_in_one_line, read_settings
from paddlewheel.cli.sources import Source, expand
from paddlewheel.config import Settings
from paddlewheel.errors import ConfigurationError
from paddlewheel.pipelines.ocr.parameters import parse_parameters
from paddlewheel.service import Service
from paddlewheel.telemetry.logs import configure_logs
from paddlewheel.telemetry.metrics import Metrics

Writer = Callable[[Read], None]


class Format(StrEnum):
    """What comes out."""

    text = "text"
    jsonl = "jsonl"
    picture = "picture"


def ocr(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files, folders, globs, or - for stdin.")],
    form: Annotated[Format, typer.Option("--format", help="text, JSON Lines, or annotated pictures.")] = Format.text,
    out: Annotated[Path | None, typer.Option(help="File to write to; a folder for --format picture.")] = None,
    pack: Annotated[str | None, typer.Option(help="Model pack; see `paddlewheel models list`.")] = None,
    workers: Annotated[str | None, typer.Option(help="Worker processes: a number, or auto.")] = None,
    det_limit_side: Annotated[int | None, typer.Option(help="Longest side at which text is searched.")] = None,
    score_threshold: Annotated[float | None, typer.Option(help="Leave out lines with a lower score.")] = None,
    orientation: Annotated[bool, typer.Option(help="Find out which way lines are turned.")] = True,
    boxes_only: Annotated[bool, typer.Option(help="Find lines, do not read them.")] = False,
    text_only: Annotated[bool, typer.Option(help="Leave the boxes out.")] = False,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Read the text in pictures, without a server."""
    parameters: dict[str, Any] = {
        "det_limit_side": det_limit_side,
        "score_threshold": score_threshold,
        "orientation": orientation,
        "boxes_only": boxes_only,
        "text_only": text_only,
    }
    given = {name: value for name, value in parameters.items() if value is not None}
    flags = {"--pack": (f"models.{MODEL}.pack", pack), "--workers": ("pool.default.workers", workers)}
    with errors_in_one_line(), ExitStack() as stack:
        parse_parameters(given)
        sources = expand(files)
        settings = read_settings(config, overrides, flags).settings
        if MODEL not in settings.models:
            raise ConfigurationError(f"The settings have no model '{MODEL}'.")
        configure_logs("critical", settings.telemetry.log_format)
        write = stack.enter_context(_writer(form, out, settings, headings=len(sources) > 1))
        failures = uvloop.run(_read_and_write(settings, sources, given, write))
    raise typer.Exit(1 if failures else 0)


async def _read_and_write(
    settings: Settings, sources: Sequence[Source], parameters: Mapping[str, Any], write: Writer
) -> int:
    """Read and write every source; return how many failed."""
    failures = 0
    async with Service(settings, Metrics()) as service:
        with shown("models") as progress:
            await service.load(progress)
        if MODEL in service.models.failures:
            raise service.models.failures[MODEL]
        with _bar(len(sources)) as advance:
            async with aclosing(read_all(service, settings, sources, parameters)) as readings:
                async for read in readings:
                    failures += read.error is not None
                    if read.error is not None:
                        typer.echo(f"Error: {read.source.name}: {read.error.detail}", err=True)
                    write(read)
                    advance(failures)
    return failures


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    """Give a function that counts one more picture, and says how many failed; it draws on a terminal only."""
    console = Console(stderr=True)
    if not console.is_terminal or total == 1:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("reading", total=total)
        yield lambda failed: bars.update(
            task, advance=1, description=f"reading, {failed} failed" if failed else "reading"
        )


@contextmanager
def _writer(form: Format, out: Path | None, settings: Settings, *, headings: bool) -> Iterator[Writer]:
    """Give the function that writes one result in the wanted form."""
    if form is Format.picture:
        if out is None:
            raise ConfigurationError("--format picture needs --out FOLDER.")
        yield _picture_writer(out, settings.limits.max_pixels)
        return
    with _opened(out) as stream:
        yield (_text_writer(stream, headings=headings) if form is Format.text else _json_writer(stream))


@contextmanager
def _opened(out: Path | None) -> Iterator[IO[bytes]]:
    """Open `out`, or standard output; a reader that has enough of it (``| head``) ends the command quietly."""
    if out is not None:
        try:
            stream = out.open("wb")
        except OSError as error:
            raise ConfigurationError(f"--out {out} cannot be written: {error.strerror}.") from None
        with stream:
            yield stream
        return
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None


def _text_writer(stream: IO[bytes], *, headings: bool) -> Writer:
    def write(read: Read) -> None:
        if read.body is not None:
            heading = f"== {read.source.name} ==\n" if headings else ""
            end = "\n\n" if headings else "\n"
            stream.write((heading + read.body["text"] + end).encode("utf-8", "backslashreplace"))
            stream.flush()

    return write


def _json_writer(stream: IO[bytes]) -> Writer:
    def write(read: Read) -> None:
        line: dict[str, Any] = {"file": read.source.name.encode("utf-8", "replace").decode()}
        if read.error is not None:
            line["error"] = {"code": read.error.code, "detail": read.error.detail}
        stream.write(orjson.dumps(line | (read.body or {})) + b"\n")
        stream.flush()

    return write


def _picture_writer(folder: Path, max_pixels: int) -> Writer:
    from paddlewheel.cli.annotate import annotate, cjk_font  # noqa: PLC0415  # only this form needs picture libraries

    folder.mkdir(parents=True, exist_ok=True)
    if cjk_font() is None:
        typer.echo("No font with Chinese characters was found: only boxes and numbers are drawn.", err=True)
    taken: set[str] = set()

    def write(read: Read) -> None:
        if read.body is not None:
            name = _free_name(Path(read.source.name).stem, taken)
            annotate(read.encoded, read.body, max_pixels).save(folder / name)

    return write


def _free_name(stem: str, taken: set[str]) -> str:
    """Return a file name that this run has not used: pictures of different folders may be called the same."""
    number = 1
    name = f"{stem}.png"
    while name in taken:
        number += 1
        name = f"{stem}-{number}.png"
    taken.add(name)
    return name
