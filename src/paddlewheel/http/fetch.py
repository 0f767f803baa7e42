"""Fetches pictures from other servers, if the settings name hosts; by default nothing is fetched.

Only listed hosts are asked, no redirect is followed, and time and size are bounded. What the other server says of the
picture is not believed: the bytes decide, as for any picture.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from paddlewheel.config import FetchSettings
from paddlewheel.errors import InvalidArgumentError, PayloadTooLargeError


async def fetch_picture(url: object, settings: FetchSettings, most_bytes: int) -> bytes:
    """Return what lies at `url`; raises :class:`InvalidArgumentError` or :class:`PayloadTooLargeError`.

    Texts name the host only: the rest of an address may hold secrets.
    """
    if not settings.hosts:
        raise InvalidArgumentError(
            "Pictures are not fetched from URLs here (setting fetch.hosts); send the picture itself as 'image'."
        )
    host = _host(url)
    if host not in {allowed.lower() for allowed in settings.hosts}:
        raise InvalidArgumentError(
            f"Pictures are not fetched from '{host:.100}'; allowed: {', '.join(settings.hosts)} (setting fetch.hosts)."
        )
    try:
        async with asyncio.timeout(settings.timeout_s):
            return await _get(str(url), host, most_bytes)
    except TimeoutError:
        raise InvalidArgumentError(
            f"The picture did not come from '{host}' within {settings.timeout_s:g} s (setting fetch.timeout_s)."
        ) from None


def _host(url: object) -> str:
    """Return host and, if there is one, port, in small letters."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        parts, port = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise InvalidArgumentError(
            "Field 'url' is no address of a picture; expected http(s)://host/path, without user."
        )
    return f"{parts.hostname}{port}"


async def _get(url: str, host: str, most_bytes: int) -> bytes:
    import httpx2  # noqa: PLC0415  # only servers that fetch need it

    # No proxies and passwords from the environment, and no packed answers, which could unpack to any size.
    try:
        async with (
            httpx2.AsyncClient(trust_env=False) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            if response.status_code != 200:
                raise InvalidArgumentError(f"'{host}' answered with status {response.status_code}; expected 200.")
            received = bytearray()
            async for chunk in response.aiter_raw():
                received += chunk
                if len(received) > most_bytes:
                    raise PayloadTooLargeError(
                        f"The picture at '{host}' has more than {most_bytes} bytes (setting limits.max_body_bytes)."
                    )
            return bytes(received)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise InvalidArgumentError(f"The picture could not be fetched from '{host}': {type(error).__name__}.") from None
