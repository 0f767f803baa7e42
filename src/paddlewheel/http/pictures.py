"""Takes the picture and the parameters out of a request, whichever way they were sent.

A multipart form, a JSON body with base64, a ``data:`` URI or an address, or the file itself as the body. What the bytes
are is decided by the bytes: neither a file name nor a content type of a part is believed. Parameters may be in the
query, in the form, or in the JSON body; the body wins.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import orjson
from starlette.requests import Request

from paddlewheel.config import Settings
from paddlewheel.errors import InvalidArgumentError
from paddlewheel.http.calls import unless_caller_leaves
from paddlewheel.http.fetch import fetch_picture
from paddlewheel.http.form import read_form

_FIELDS: Final = ("image", "file")


async def read_picture(request: Request, settings: Settings) -> tuple[bytes, dict[str, Any]]:
    """Return the encoded picture and the call's parameters, unchecked; raises :class:`InvalidArgumentError`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    parameters: dict[str, Any] = dict(request.query_params)
    if kind == "multipart/form-data":
        picture, own = _from_form(await request.body(), request.headers["content-type"])
    elif kind == "application/json" or kind.endswith("+json"):
        own = _json_object(await request.body())
        picture = await _from_json(own, request, settings)
    else:
        picture, own = await request.body(), {}
    return picture, parameters | own


def _from_form(body: bytes, content_type: str) -> tuple[bytes, dict[str, Any]]:
    parts = read_form(body, content_type)
    files = [part for part in parts if part.is_file]
    if len(files) != 1 or files[0].name not in _FIELDS:
        names = ", ".join(f"'{part.name:.60}'" for part in files) or "none"
        raise InvalidArgumentError(f"The form has these files: {names}; expected one, as 'image' or 'file'.")
    return bytes(files[0].data), {part.name: part.text for part in parts if not part.is_file}


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError(f"The body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise InvalidArgumentError('The body is JSON but no object; expected {"image": "<base64>"}.')
    return given


async def _from_json(given: dict[str, Any], request: Request, settings: Settings) -> bytes:
    """Take the picture out of `given`, in which the parameters are left."""
    if "url" in given:
        fetching = fetch_picture(given.pop("url"), settings.fetch, settings.limits.max_body_bytes)
        return await unless_caller_leaves(request.scope, fetching)
    return decode_base64(given.pop("image", None))


def decode_base64(text: Any) -> bytes:
    """Return the picture in a field `image` of a JSON body; raises :class:`InvalidArgumentError`."""
    if not isinstance(text, str):
        raise InvalidArgumentError("Field 'image' is missing or no text; expected base64 or a data: URI.")
    if text.startswith("data:"):
        head, comma, text = text.partition(",")
        if not comma or not head.endswith(";base64"):
            raise InvalidArgumentError(
                "Field 'image' is a data: URI without base64; expected data:image/...;base64,..."
            )
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgumentError(f"Field 'image' is not base64: {error}.") from None
