"""An engine's own settings, checked: an unknown or ill-typed one is refused before a file is touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from paddlewheel.errors import ModelLoadError

_Options = TypeVar("_Options", bound=msgspec.Struct)


def parse_options(engine: str, kind: type[_Options], given: Mapping[str, Any]) -> _Options:
    """Return `given` as `kind`; raises :class:`ModelLoadError` that names the known settings."""
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            raise ModelLoadError(
                f"Engine '{engine}' has no option '{name}'; expected one of: {', '.join(sorted(known)) or 'none'}."
            )
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        raise ModelLoadError(f"Engine '{engine}' cannot use its options: {error}.") from error
