"""The characters that a recognition network can answer with, whatever form a package ships them in.

In a pulled pack they are ``dictionary.txt``: UTF-8, entries parted by line feeds and nothing else. An entry may be
U+3000, another kind of space or several code points (flags), so nothing is stripped and `str.splitlines` is not for
them. The network's blank (class 0) and PP-OCR's space (last class) are not entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml


def read_dictionary(file: Path) -> tuple[str, ...]:
    """Return the entries of a ``dictionary.txt``."""
    return tuple(_lines(file))


def write_dictionary(file: Path, entries: Sequence[str]) -> None:
    """Write `entries` as a ``dictionary.txt``."""
    file.write_bytes("\n".join(entries).encode())


def entries_of(origin: Path) -> Sequence[str]:
    """Return the entries that a shipped file holds; raises ValueError if it holds none.

    ``.onnx``: the metadata value `character`; ``.yml``: ``PostProcess.character_dict``; else an entry a line.
    """
    match origin.suffix:
        case ".onnx":
            entries: object = onnx_metadata(origin.read_bytes()).get("character", "").split("\n")
        case ".yml":
            entries = yaml.safe_load(origin.read_bytes())["PostProcess"]["character_dict"]
        case _:
            entries = _lines(origin)
    if not isinstance(entries, list):
        raise ValueError(f"{origin.name} holds no list of characters")  # noqa: TRY004  the file's value is wrong
    wrong = [entry for entry in entries if not isinstance(entry, str) or not entry or "\n" in entry]
    if wrong:
        raise ValueError(f"{origin.name} lists {wrong[0]!r} where a character should be")
    return entries


def _lines(file: Path) -> list[str]:
    return file.read_bytes().decode().removesuffix("\n").split("\n")


def onnx_metadata(model: bytes) -> dict[str, str]:
    """Return the `metadata_props` of a serialized ONNX model (field 14 of ModelProto: key 1, value 2)."""
    pairs = (dict(_chunks(memoryview(chunk))) for number, chunk in _chunks(memoryview(model)) if number == 14)
    return {str(pair.get(1, b""), "utf-8"): str(pair.get(2, b""), "utf-8") for pair in pairs}


def _chunks(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield (field number, bytes) of the length-delimited fields of a protobuf message (wire format, types 0-2, 5)."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                _, at = _varint(message, at)
            case 1:
                at += 8
            case 2:
                length, at = _varint(message, at)
                yield tag >> 3, message[at : at + length]
                at += length
            case 5:
                at += 4
            case kind:
                raise ValueError(f"not a protobuf message: wire type {kind}")
    if at != len(message):
        raise ValueError("not a protobuf message: it ends within a field")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("not a protobuf message: it ends within a number")
