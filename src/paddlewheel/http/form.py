"""Reads a multipart form that is in memory already: its size is bounded, so nothing of it needs to go to disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from paddlewheel.errors import InvalidArgumentError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks  # there for type checkers only

_MOST_PARTS = 64
_MOST_HEADER_BYTES = 16_384


@dataclass(slots=True)
class Part:
    """A field of the form; one with a file name, even an empty one, is a file. Names are labels, never paths."""

    name: str = ""
    is_file: bool = False
    data: bytearray = field(default_factory=bytearray)

    @property
    def text(self) -> str:
        """The value of a field that is no file."""
        return self.data.decode("utf-8", "replace")


def read_form(body: bytes, content_type: str) -> list[Part]:
    """Return the parts of a multipart body, in order; raises :class:`InvalidArgumentError`."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise InvalidArgumentError("The multipart form has no boundary in its Content-Type.")
    reader = _Reader()
    try:
        parser = MultipartParser(boundary, reader.callbacks(), max_header_size=_MOST_HEADER_BYTES)
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise InvalidArgumentError(f"The multipart form is not well formed: {error}") from None
    if not reader.complete:
        raise InvalidArgumentError("The multipart form is truncated: its closing boundary is missing.")
    return reader.parts


class _Reader:
    """Collects what the parser finds."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.complete = False
        self._header, self._value = bytearray(), bytearray()

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_part_data": lambda data, start, end: self.parts[-1].data.extend(data[start:end]),
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.parts) >= _MOST_PARTS:
            raise InvalidArgumentError(f"The multipart form has more than {_MOST_PARTS} parts.")
        self.parts.append(Part())

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            self.parts[-1].name = options.get(b"name", b"").decode("utf-8", "replace")
            self.parts[-1].is_file = b"filename" in options
        self._header.clear()
        self._value.clear()

    def _end(self) -> None:
        self.complete = True
