"""What an engine compiled is kept whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.engines.compiled_cache import cache_entry, entry_name


def test_an_entry_is_put_in_place_when_it_is_complete(tmp_path: Path) -> None:
    """Nobody sees an entry that is still being written; afterwards the same folder is given out again."""
    with cache_entry(tmp_path, "entry") as folder:
        (folder / "blob").write_bytes(b"compiled")
        assert not (tmp_path / "entry").exists()
    with cache_entry(tmp_path, "entry") as again:
        assert (again / "blob").read_bytes() == b"compiled"
    assert [each.name for each in tmp_path.iterdir()] == ["entry"]


def test_two_that_compile_at_once_do_not_share_a_folder(tmp_path: Path) -> None:
    """The first to finish is kept, the other's is removed, and neither fails."""
    with cache_entry(tmp_path, "entry") as first, cache_entry(tmp_path, "entry") as second:
        assert first != second
        (first / "blob").write_bytes(b"first")
        (second / "blob").write_bytes(b"second")
    assert [each.name for each in tmp_path.iterdir()] == ["entry"]
    assert (tmp_path / "entry" / "blob").read_bytes() == b"second"


def test_what_fails_to_compile_leaves_nothing(tmp_path: Path) -> None:
    """An error of the library passes through, and its scratch folder goes."""

    def compile_badly() -> None:
        with cache_entry(tmp_path, "entry"):
            raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        compile_badly()
    assert list(tmp_path.iterdir()) == []


def test_a_changed_file_is_another_entry(tmp_path: Path) -> None:
    """The name follows the file's contents, as far as size and time tell, and the circumstances."""
    model = tmp_path / "model.onnx"
    model.write_bytes(b"one")
    before = entry_name(model, "version 1")
    assert entry_name(model, "version 1") == before
    assert entry_name(model, "version 2") != before
    model.write_bytes(b"three")
    assert entry_name(model, "version 1") != before
