"""The models that a running server serves, as everybody else sees them: who gets a call, and how each one stands.

Knows nothing of loading; :class:`~paddlewheel.repository.ModelRepository` does that and keeps this up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog

from paddlewheel.batching import Scheduler, ServedVersion, VersionStatistics
from paddlewheel.errors import NotFoundError, PaddlewheelError, UnavailableError
from paddlewheel.repository.description import IndexEntry, ModelDescription
from paddlewheel.repository.folder import ModelFolder
from paddlewheel.repository.served_model import LOADING_RETRY_AFTER_S, ServedModel
from paddlewheel.workers import ProcessPool

_log = structlog.stdlib.get_logger(__name__)


class ServedModels:
    """Models by name, and the schedulers that run them, by pool."""

    def __init__(self, names: Iterable[str], folder: ModelFolder | None) -> None:
        self._models = {name: ServedModel(name) for name in names}
        self._schedulers: dict[str, Scheduler] = {}
        self._folder = folder

    @property
    def ready(self) -> bool:
        """Whether every model that should be served can be called; without any it is not."""
        wanted = [model for model in self._models.values() if model.wanted]
        return bool(wanted) and all(model.ready for model in wanted)

    @property
    def failures(self) -> Mapping[str, PaddlewheelError]:
        """The models of which something that should be served is not, and why."""
        return {name: model.error for name, model in self._models.items() if model.error is not None}

    @property
    def pools(self) -> Mapping[str, ProcessPool]:
        """The pools that run, by name."""
        return {name: scheduler.pool for name, scheduler in self._schedulers.items()}

    def __contains__(self, name: str) -> bool:
        """Tell whether there is a model called `name` that is or was to be served."""
        return name in self._models

    def served(self) -> list[ServedVersion]:
        """Return every version that can be called."""
        return [served for model in self._models.values() for served in model.served]

    def names(self) -> tuple[str, ...]:
        """Return the names of the models that should be served."""
        return tuple(name for name, model in self._models.items() if model.wanted)

    def model_ready(self, name: str, version: str | None = None) -> bool:
        """Tell whether `name`, or its `version`, can be called."""
        model = self._models.get(name)
        return model is not None and (model.serves(version) if version else model.ready)

    def _known(self, name: str) -> ServedModel:
        if name in self._models:
            return self._models[name]
        if self._folder is not None and name in self._folder:
            raise UnavailableError(f"Model '{name}' is not loaded.", retry_after_s=LOADING_RETRY_AFTER_S)
        known = ", ".join(sorted(self._models)) or "none"
        raise NotFoundError(f"There is no model '{name:.100}'; this server has: {known}.")

    def find(
        self, name: str, version: str | None = None, sticky_key: str | None = None
    ) -> tuple[Scheduler, ServedVersion]:
        """Return the version that a call gets (see :meth:`ServedModel.choose`), and the scheduler of its pool.

        Raises :class:`NotFoundError`, :class:`UnavailableError` or what loading it failed with.
        """
        model = self._known(name)
        chosen = model.choose(version, sticky_key)
        assert model.scheduler is not None, "a version that is served has a pool"
        return model.scheduler, chosen

    def describe(self, name: str, version: str | None = None) -> ModelDescription:
        """Describe a version, the highest by default; raises as :meth:`find`."""
        model = self._known(name)
        served = model.choose(version or (model.served[-1].spec.version if model.served else None), None)
        spec, versions = served.spec, tuple(each.spec.version for each in model.served)
        return ModelDescription(
            name, spec.version, versions, served.signature, spec, served.batching, served.max_batch_size
        )

    def statistics(self, name: str | None = None, version: str | None = None) -> list[VersionStatistics]:
        """Return what the requests to each version cost, of one model or version if named; raises as :meth:`find`."""
        if name and version:
            return [self.find(name, version)[1].statistics]
        models = [self._known(name)] if name else self._models.values()
        return [served.statistics for model in models for served in model.versions.values()]

    def weights(self, name: str) -> Mapping[str, float]:
        """Return how calls to `name` are shared out; raises :class:`NotFoundError`."""
        return self._known(name).weights

    def set_weights(self, name: str, weights: Mapping[str, float]) -> None:
        """Share the calls to `name` out anew, until it is loaded again; raises as :meth:`ServedModel.set_weights`."""
        self._known(name).set_weights(weights)
        _log.info("weights of versions have changed", model=name, weights=dict(weights))

    def index(self) -> list[IndexEntry]:
        """Return how each version stands, with those in the folder that nobody has loaded."""
        entries = [entry for model in self._models.values() for entry in _entries(model)]
        known = {entry.name for entry in entries}
        idle = [name for name in self._folder.names() if name not in known] if self._folder else []
        for name in idle:
            assert self._folder is not None, "they come from it"
            entries += [
                IndexEntry(name, version, "UNAVAILABLE", "not loaded") for version in self._folder.versions(name)
            ]
        return entries


def _entries(model: ServedModel) -> list[IndexEntry]:
    found: dict[str, IndexEntry] = {}
    for version in model.leaving:
        found[version] = IndexEntry(model.name, version, "UNLOADING")
    for version, error in model.failures.items():
        found[version] = IndexEntry(model.name, version, "UNAVAILABLE", error.detail)
    for version in model.incoming:
        found[version] = IndexEntry(model.name, version, "LOADING")
    for version, served in model.versions.items():
        if model.serves(version):
            reason = f"an update failed: {model.failures[version].detail}" if version in model.failures else ""
            found[version] = IndexEntry(model.name, version, "READY", reason)
        elif served.state.error is not None:
            found[version] = IndexEntry(model.name, version, "UNAVAILABLE", served.state.error.detail)
        else:
            found[version] = IndexEntry(model.name, version, "LOADING")
    return list(found.values())
