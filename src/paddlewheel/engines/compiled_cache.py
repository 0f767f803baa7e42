"""Keeps what an engine compiled, so that a worker that replaces a dead one loads it instead of compiling again.

An engine library writes its cache in place and maps it into memory, so a second process could map a file that the
first is still writing. Here each entry is a folder of its own: written apart, put in place in one step, and never
changed after that. Processes that compile the same thing at once each do it for themselves; the first one's is kept.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SCRATCH = "scratch-"
_ABANDONED_AFTER_S = 3600.0


def entry_name(model: Path, *circumstances: object) -> str:
    """Return the name of the entry for the file `model` as it is now, compiled under `circumstances`."""
    status = model.stat()
    facts = (str(model.resolve()), status.st_size, status.st_mtime_ns, *circumstances)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


@contextmanager
def cache_entry(cache: Path, name: str) -> Iterator[Path]:
    """Give the folder that the library may use as its cache while the entry `name` is loaded or, if new, compiled."""
    entry = cache / name
    if entry.is_dir():
        yield entry
        return
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep(cache)
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=cache))
    try:
        yield scratch
        scratch.rename(entry)
    except OSError:
        # Another process was first (the entry is not empty), or the disk is full: what was compiled is in use all the
        # same, it is only not kept.
        shutil.rmtree(scratch, ignore_errors=True)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _sweep(cache: Path) -> None:
    """Remove what killed processes have left."""
    for scratch in cache.glob(f"{_SCRATCH}*"):
        try:
            abandoned = time.time() - scratch.stat().st_mtime > _ABANDONED_AFTER_S
        except FileNotFoundError:
            continue
        if abandoned:
            shutil.rmtree(scratch, ignore_errors=True)
