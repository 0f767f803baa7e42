"""``paddlewheel ocr``: what comes out, in which order, and with which exit status."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import psutil
import pytest
from PIL import Image

from paddlewheel.cli.sources import expand
from paddlewheel.errors import InvalidArgumentError
from waiting import wait_for

SAMPLES = Path(__file__).parent.parent / "samples"
COMMAND = [sys.executable, "-m", "paddlewheel", "ocr", "--pack", "ppocrv6-tiny"]


@pytest.fixture(autouse=True)
def _shared_models(models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLEWHEEL_MODELS_DIR", str(models_dir))
    monkeypatch.setenv("PADDLEWHEEL_POOL__DEFAULT__NICE", "0")


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command to its end."""
    return subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with pictures, a sub-folder with a Chinese name, and a file that is no picture."""
    folder = tmp_path_factory.mktemp("pictures")
    shutil.copy(SAMPLES / "card.jpg", folder / "b.jpg")
    Image.new("RGB", (64, 64), "white").save(folder / "a.png")
    (folder / "notes.txt").write_text("no picture")
    (folder / "子目录").mkdir()
    shutil.copy(SAMPLES / "menu.jpg", folder / "子目录" / "菜单 1.jpg")
    return folder


def test_folder_as_json_lines(folder: Path) -> None:
    """Every picture of the folder gives a line, in order of names, whatever is finished first."""
    done = run(str(folder), "--format", "jsonl")
    assert done.returncode == 0, done.stderr.decode()
    lines = [orjson.loads(line) for line in done.stdout.splitlines()]
    names = [str(Path(line["file"]).relative_to(folder)) for line in lines]
    assert names == ["a.png", "b.jpg", "子目录/菜单 1.jpg"]
    assert [len(line["lines"]) for line in lines] == [0, 7, 17]
    assert lines[2]["lines"][0]["text"].replace(" ", "") == "今日菜单MENU"


def test_standard_input_as_text() -> None:
    """A picture on standard input is read, and one picture has no heading."""
    done = run("-", stdin=(SAMPLES / "card.jpg").read_bytes())
    assert done.returncode == 0
    assert done.stdout.decode().replace(" ", "").splitlines()[3] == "出生1990年1月1日"


def test_a_broken_file_fails_alone(folder: Path, tmp_path: Path) -> None:
    """The others are read all the same; the status says that one failed, and standard error which and why."""
    broken = tmp_path / "broken.jpg"
    broken.write_bytes((SAMPLES / "card.jpg").read_bytes()[:5000])
    out = tmp_path / "out.jsonl"
    done = run(str(broken), str(folder / "b.jpg"), "--format", "jsonl", "--out", str(out))
    assert done.returncode == 1
    failed, read = (orjson.loads(line) for line in out.read_bytes().splitlines())
    assert failed["error"]["code"] == "INVALID_ARGUMENT"
    assert "truncated" in failed["error"]["detail"]
    assert len(read["lines"]) == 7
    assert "broken.jpg" in done.stderr.decode()


def test_annotated_pictures(folder: Path, tmp_path: Path) -> None:
    """A picture comes out twice as wide: boxes on the left, what was read on the right."""
    out = tmp_path / "drawn"
    assert run(str(folder / "b.jpg"), "--format", "picture", "--out", str(out)).returncode == 0
    with Image.open(out / "b.png") as drawn:
        assert drawn.size == (2048, 646)
        right = drawn.crop((1024, 0, 2048, 646)).convert("L")
        assert right.getextrema()[0] < 200, "text is written beside the picture"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("nowhere.jpg",), "nowhere.jpg: no such file"),
        ((str(SAMPLES / "card.jpg"), "--score-threshold", "7"), "score_threshold"),
        ((str(SAMPLES / "card.jpg"), "--pack", "ppocrv7"), "ppocrv7"),
        ((str(SAMPLES / "card.jpg"), "--format", "picture"), "--out"),
        ((str(SAMPLES / "card.jpg"), "--out", "/nowhere/x"), "/nowhere/x"),
    ],
)
def test_mistakes_are_one_clear_line(arguments: tuple[str, ...], expected: str) -> None:
    """What is wrong is said on one line, with its name, and nothing is started."""
    done = run(*arguments)
    assert done.returncode == 1
    assert expected in done.stderr.decode()
    assert len(done.stderr.decode().strip().splitlines()) == 1


def test_interrupt_ends_the_workers_too(folder: Path) -> None:
    """Ctrl-C ends the command with 130, and leaves no worker behind."""
    copies = [str(folder / "b.jpg"), *(str(SAMPLES / name) for name in ("page.png", "page_rot90.png", "receipt.jpg"))]
    process = subprocess.Popen([*COMMAND, *copies], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline()
    family = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(20) == 130
    process.stdout.close()
    wait_for(lambda: not any(each.is_running() and each.status() != "zombie" for each in family), 10, "workers end")


def test_expand_names_each_picture_once(folder: Path) -> None:
    """Files, folders and globs may overlap; the order is that of the arguments."""
    sources = expand([str(folder / "子目录" / "*.jpg"), str(folder)])
    assert [Path(source.name).name for source in sources] == ["菜单 1.jpg", "a.png", "b.jpg"]
    with pytest.raises(InvalidArgumentError, match="no picture in that folder"):
        expand([str(folder / "*.gif")])
