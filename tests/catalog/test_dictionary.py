from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.catalog import read_dictionary
from paddlewheel.catalog.dictionary import entries_of, onnx_metadata, write_dictionary

ENTRIES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1), min_size=1)
TRICKY = [" ", "\u3000", "\u0085", "\u2028", "\r", "\x0b", "0", "~", "null", "- a", "#", "'", '"', "🇨🇳"]


def varint(value: int) -> bytes:
    """Encode `value` as protobuf does."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def chunk(number: int, content: bytes) -> bytes:
    """Encode a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def onnx_model(metadata: dict[str, str]) -> bytes:
    """Encode a ModelProto with fields of every wire type around `metadata`."""
    pairs = [chunk(14, chunk(1, key.encode()) + chunk(2, value.encode())) for key, value in metadata.items()]
    graph = chunk(7, bytes(range(256)) * 10)
    return b"".join(
        (varint(1 << 3) + varint(300), graph, *pairs, varint(99 << 3 | 1) + bytes(8), varint(98 << 3 | 5) + bytes(4))
    )


@given(entries=ENTRIES)
def test_a_written_dictionary_reads_back(tmp_path_factory: pytest.TempPathFactory, entries: list[str]) -> None:
    """Whatever kind of space or line separator an entry is, the entries and their order survive."""
    file = tmp_path_factory.getbasetemp() / "dictionary.txt"
    write_dictionary(file, entries)
    assert list(read_dictionary(file)) == entries
    assert file.read_bytes().decode().split("\n") == entries


@given(
    metadata=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_metadata_of_an_onnx_model_is_found(metadata: dict[str, str]) -> None:
    """All metadata entries are read, whatever fields lie around them."""
    assert onnx_metadata(onnx_model(metadata)) == metadata


@given(junk=st.binary(max_size=60), cut=st.integers(0, 60))
def test_bytes_that_are_no_model_are_a_value_error(junk: bytes, cut: int) -> None:
    """Junk and cut models end in an empty answer or a ValueError, never in another exception or a hang."""
    for data in (junk, onnx_model({"character": "a\nb"})[:-cut]):
        try:
            onnx_metadata(data)
        except ValueError:
            continue


def test_entries_come_from_every_form(tmp_path: Path) -> None:
    """ONNX metadata, inference.yml and plain lists give the same entries."""
    onnx, config, keys = tmp_path / "rec.onnx", tmp_path / "rec.yml", tmp_path / "keys.txt"
    onnx.write_bytes(onnx_model({"character": "\n".join(TRICKY)}))
    tree = {"PostProcess": {"name": "CTCLabelDecode", "character_dict": TRICKY}}
    config.write_text(yaml.safe_dump(tree))
    keys.write_bytes("\n".join(TRICKY).encode())
    assert entries_of(onnx) == entries_of(config) == entries_of(keys) == TRICKY
    keys.write_bytes("\n".join([*TRICKY, ""]).encode())
    assert entries_of(keys) == TRICKY


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rec.onnx", onnx_model({"other": "a"})),
        ("rec.yml", b"PostProcess: {character_dict: [a, null]}"),
        ("rec.yml", b"PostProcess: {character_dict: abc}"),
        ("keys.txt", b""),
        ("keys.txt", b"a\n\nb"),
    ],
)
def test_a_file_without_characters_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    """No list, or a list with holes, is an error: a missing entry would shift every character after it."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=name):
        entries_of(tmp_path / name)
