"""Which pictures a command line names: files, folders, globs, or standard input."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddlewheel.errors import InvalidArgumentError
from paddlewheel.pipelines.containers.signature import ALLOWED, name_format

STDIN = "-"
_SIGNATURE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Source:
    """A picture to read: its name as shown, and its file; None is standard input."""

    name: str
    path: Path | None

    def read(self) -> bytes:
        """Return the encoded picture; raises :class:`InvalidArgumentError` if the file cannot be read."""
        try:
            return sys.stdin.buffer.read() if self.path is None else self.path.read_bytes()
        except OSError as error:
            raise InvalidArgumentError(f"{self.name} cannot be read: {error.strerror}.") from None


def expand(arguments: Sequence[str]) -> list[Source]:
    """Return the pictures that `arguments` name, in their order, within a folder by name, each once.

    In folders and globs, files that are no pictures by their bytes are passed over; a file that is named is taken as
    it is. Raises :class:`InvalidArgumentError` for an argument that names nothing.
    """
    found: dict[str, Source] = {}
    for argument in arguments:
        sources = list(_of(argument))
        if not sources:
            raise InvalidArgumentError(f"{argument}: no such file, or no picture in that folder.")
        for source in sources:
            found.setdefault(source.name, source)
    return list(found.values())


def _of(argument: str) -> Iterator[Source]:
    path = Path(argument)
    if argument == STDIN:
        yield Source("stdin", None)
    elif path.is_dir():
        yield from _pictures(sorted(each for each in path.rglob("*") if each.is_file()))
    elif path.exists():
        yield Source(argument, path)
    else:
        yield from _pictures([Path(each) for each in sorted(glob.glob(argument, recursive=True))])  # noqa: PTH207  # absolute ones too


def _pictures(paths: Sequence[Path]) -> Iterator[Source]:
    for path in paths:
        if path.is_file() and _is_picture(path):
            yield Source(str(path), path)


def _is_picture(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return name_format(file.read(_SIGNATURE_BYTES)) in ALLOWED
    except OSError:
        return False
