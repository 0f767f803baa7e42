"""A model at run time: which of its versions are served, and which of them a call gets."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from paddlewheel.batching import Scheduler, ServedVersion
from paddlewheel.errors import InvalidArgumentError, NotFoundError, PaddlewheelError, UnavailableError, from_record

LOADING_RETRY_AFTER_S = 1.0


@dataclass(slots=True, eq=False)
class ServedModel:
    """A model and its versions."""

    name: str
    scheduler: Scheduler | None = None
    """Of the pool that holds it; None before its first version was found."""
    versions: dict[str, ServedVersion] = field(default_factory=dict)
    """Those that calls may get, the lowest first; at start, they may still be loading."""
    incoming: set[str] = field(default_factory=set)
    """Those that are being loaded, and will take over."""
    failures: dict[str, PaddlewheelError] = field(default_factory=dict)
    """Why versions that should be served are not; under "" why none was found."""
    leaving: dict[str, ServedVersion] = field(default_factory=dict)
    """Those that finish what they have."""
    origins: dict[str, object] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    wanted: bool = True
    """Whether it should be served: it is configured, or was loaded, and no client has unloaded it since."""
    was_ready: bool = False
    """Whether all that should be served was, once: what fails after that is an update, and the old serves on."""

    def serves(self, version: str) -> bool:
        """Tell whether a worker is up that has `version` loaded."""
        served = self.versions.get(version)
        return served is not None and self.scheduler is not None and self.scheduler.pool.serves(served.spec.key)

    @property
    def served(self) -> list[ServedVersion]:
        """The versions that can be called now, the lowest first."""
        return [served for version, served in self.versions.items() if self.serves(version)]

    @property
    def ready(self) -> bool:
        """Whether it can be called; until it could for the first time, all of its versions must be loaded."""
        all_loaded = not self.failures and len(self.served) == len(self.versions)
        return bool(self.served) and (all_loaded or self.was_ready)

    @property
    def error(self) -> PaddlewheelError | None:
        """Why the newest version that failed did."""
        states = (served.state.error for served in self.versions.values())
        return next(reversed(self.failures.values()), None) or next((error for error in states if error), None)

    def choose(self, version: str | None, sticky_key: str | None) -> ServedVersion:
        """Return the version that a call gets: the one that it names, else by weight, else the highest.

        Calls with one sticky key get the same version as long as the weights stay; when they change, as few keys as
        possible move. Raises :class:`NotFoundError` or :class:`UnavailableError`.
        """
        if version:
            return self._named(version)
        if self.weights:
            return self._by_weight(sticky_key)
        for highest_first in reversed(self.versions):
            if self.serves(highest_first):
                return self.versions[highest_first]
        raise self._unavailable()

    def _by_weight(self, sticky_key: str | None) -> ServedVersion:
        served = self.served
        if not served:
            raise self._unavailable()
        shares = [(each, self.weights.get(each.spec.version, 0.0)) for each in served]
        total = sum(share for _, share in shares)
        if not total:
            return served[-1]
        point = total * (random.random() if sticky_key is None else _point(self.name, sticky_key))  # noqa: S311  # chance, no secret
        for each, share in shares:
            point -= share
            if point < 0:
                return each
        return next(each for each, share in reversed(shares) if share)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Share the calls out anew; raises :class:`InvalidArgumentError` unless each version is served."""
        unknown = sorted(weights.keys() - self.versions.keys())
        if unknown or any(weight < 0 for weight in weights.values()) or (weights and not sum(weights.values())):
            raise InvalidArgumentError(
                f"The weights {dict(weights)} do not fit model '{self.name}'; expected one of 0 or more for some of "
                f"its versions ({', '.join(self.versions) or 'none is served'}), and not only zeros."
            )
        self.weights = dict(weights)

    def _named(self, version: str) -> ServedVersion:
        if self.serves(version):
            return self.versions[version]
        failure = self.failures.get(version)
        if failure is not None:
            # A copy: an exception that is raised again and again gathers tracebacks.
            raise from_record(failure.record())
        if version in self.versions or version in self.incoming:
            raise self._loading()
        served = ", ".join(self.versions) or "none"
        raise NotFoundError(f"Model '{self.name}' has no version '{version:.40}'; served: {served}.")

    def _unavailable(self) -> PaddlewheelError:
        if self.error is not None:
            return from_record(self.error.record())
        if self.wanted:
            return self._loading()
        return UnavailableError(f"Model '{self.name}' is not loaded.", retry_after_s=LOADING_RETRY_AFTER_S)

    def _loading(self) -> UnavailableError:
        return UnavailableError(f"Model '{self.name}' is not loaded yet.", retry_after_s=LOADING_RETRY_AFTER_S)


def _point(model: str, sticky_key: str) -> float:
    """Return where a caller's key falls, evenly spread over 0 to 1 and the same at each call."""
    digest = hashlib.blake2b(f"{model}\0{sticky_key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
