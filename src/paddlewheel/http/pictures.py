"""Takes the picture and the parameters out of a request, whichever way they were sent.

A multipart form, a JSON body with base64 or a ``data:`` URI, or the file itself as the body. What the bytes are is
decided by the bytes: neither a file name nor a content type of a part is believed. Parameters may be in the query, in
the form, or in the JSON body; the body wins.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import orjson
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from paddlewheel.config import Limits
from paddlewheel.errors import InvalidArgumentError

_FIELDS: Final = ("image", "file")
_MOST_FIELDS: Final = 64


async def read_picture(request: Request, limits: Limits) -> tuple[bytes, dict[str, Any]]:
    """Return the encoded picture and the call's parameters, unchecked; raises :class:`InvalidArgumentError`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    parameters: dict[str, Any] = dict(request.query_params)
    if kind == "multipart/form-data":
        picture, own = await _from_form(request, limits)
    elif kind == "application/json" or kind.endswith("+json"):
        picture, own = _from_json(await request.body())
    else:
        picture, own = await request.body(), {}
    return picture, parameters | own


async def _from_form(request: Request, limits: Limits) -> tuple[bytes, dict[str, Any]]:
    try:
        form = await request.form(max_files=_MOST_FIELDS, max_fields=_MOST_FIELDS, max_part_size=limits.max_body_bytes)
    except (MultiPartException, ValueError, LookupError) as error:
        raise InvalidArgumentError(f"The multipart form is not well formed: {error}") from None
    try:
        return await _file_of(form), {name: value for name, value in form.items() if isinstance(value, str)}
    finally:
        await form.close()


async def _file_of(form: FormData) -> bytes:
    files = [(name, value) for name, value in form.multi_items() if isinstance(value, UploadFile)]
    wanted = [value for name, value in files if name in _FIELDS]
    if len(wanted) != 1 or len(files) != 1:
        names = ", ".join(repr(name)[:60] for name, _ in files) or "none"
        raise InvalidArgumentError(f"The form has these files: {names}; expected one, as 'image' or 'file'.")
    return await wanted[0].read()


def _from_json(body: bytes) -> tuple[bytes, dict[str, Any]]:
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError(f"The body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise InvalidArgumentError('The body is JSON but no object; expected {"image": "<base64>"}.')
    if "url" in given:
        raise InvalidArgumentError("Pictures are not fetched from URLs here; send the picture itself as 'image'.")
    text = given.pop("image", None)
    if not isinstance(text, str):
        raise InvalidArgumentError("Field 'image' is missing or no text; expected base64 or a data: URI.")
    return _decode_base64(text), given


def _decode_base64(text: str) -> bytes:
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
