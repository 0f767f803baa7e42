"""What a caller may say about its call, the same over every protocol: its id, its deadline, its place in the queue."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from paddlewheel.config import Limits
from paddlewheel.errors import InvalidArgumentError
from paddlewheel.inference import HIGHEST_PRIORITY, deadline_in

REQUEST_ID: Final = "x-request-id"
STICKY_KEY: Final = "x-sticky-key"
TIMEOUT: Final = "x-request-timeout"

_random: Final = random.Random()  # noqa: S311  # ids are no secrets, and the system's source costs a call of it
_WELL_FORMED_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


def request_id(given: str | None) -> str:
    """Return the id that the caller gave if it is well formed, else a new one."""
    return given if given and _WELL_FORMED_ID.fullmatch(given) else f"{_random.getrandbits(128):032x}"


def deadline_after(seconds: float, limits: Limits, given: str) -> float:
    """Return the deadline that lies `seconds` from now; raises :class:`InvalidArgumentError` about what was `given`."""
    if not 0 < seconds <= limits.max_deadline_s:
        raise InvalidArgumentError(f"{given}; expected more than 0 and at most {limits.max_deadline_s:g} seconds.")
    return deadline_in(seconds)


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What the parameters of a V2 request say of the call; those that are left are the model's."""

    priority: int
    deadline: float | None
    sticky_key: str | None
    parameters: Mapping[str, Any]


def read_classes(outputs: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, int]:
    """Return of which outputs how many classes are wanted, from their parameters in a V2 request."""
    classes = {name: parameters["classification"] for name, parameters in outputs if "classification" in parameters}
    for name, count in classes.items():
        if type(count) is not int:
            raise InvalidArgumentError(f"Output '{name:.100}' has classification {count!r:.40}; expected a number.")
    return classes


def read_options(
    parameters: Mapping[str, Any], limits: Limits, *, deadline: float | None, sticky_key: str | None
) -> CallOptions:
    """Take ``priority``, ``timeout`` (microseconds) and ``sticky_key`` out of the parameters of a V2 request.

    `deadline` and `sticky_key` are those that its headers give: the nearer deadline holds, and the parameter's key.
    """
    left = dict(parameters)
    priority = left.pop("priority", HIGHEST_PRIORITY)
    timeout_us = left.pop("timeout", None)
    sticky_key = left.pop("sticky_key", sticky_key)
    if type(priority) is not int or type(timeout_us) not in (int, type(None)):
        raise InvalidArgumentError("Parameters 'priority' and 'timeout' are whole numbers (timeout in microseconds).")
    if not isinstance(sticky_key, str | None):
        raise InvalidArgumentError("Parameter 'sticky_key' is no text.")
    if timeout_us:
        asked = deadline_after(timeout_us / 1e6, limits, f"Parameter 'timeout' is {timeout_us} microseconds")
        deadline = asked if deadline is None else min(asked, deadline)
    return CallOptions(priority, deadline, sticky_key, left)
