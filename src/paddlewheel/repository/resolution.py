"""Turns settings and files into what workers need to load a model: for each version a real engine and its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddlewheel import catalog, engines
from paddlewheel.config import ModelSettings, Settings, load_model_settings
from paddlewheel.errors import ConfigurationError, ModelLoadError, NotFoundError, PaddlewheelError
from paddlewheel.pipelines import ModelSpec
from paddlewheel.pipelines.spec import Filling, Padding
from paddlewheel.repository.folder import ModelFolder, network_in, state_of
from paddlewheel.workers import available_cores, thread_counts

ECHO_VERSION = "1"
_DEFAULT_BATCH_SIZE = 8


@dataclass(frozen=True, slots=True)
class Resolved:
    """A model that was looked up: for each version that should be served its spec, or why there is none.

    `origins` tell, by version, what each spec was made of: an equal one need not be loaded again.
    """

    name: str
    settings: ModelSettings
    specs: Mapping[str, ModelSpec]
    origins: Mapping[str, object]
    failures: Mapping[str, PaddlewheelError] = field(default_factory=dict)


def _silent(_: catalog.Step) -> None:
    """Report no progress."""


def folder_of(settings: Settings) -> ModelFolder | None:
    """Return the folder of models, if there is one; raises :class:`ConfigurationError` if it is not there."""
    path = settings.repository.path
    if path is not None and not path.is_dir():
        raise ConfigurationError(f"The model repository '{path}' is no folder (setting repository.path).")
    return None if path is None else ModelFolder(path)


def resolve(name: str, settings: Settings, progress: catalog.Progress = _silent) -> Resolved:
    """Look up the model called `name`, after pulling its pack if it is not there; blocks meanwhile.

    Raises :class:`NotFoundError`, or :class:`ModelLoadError` or :class:`ConfigurationError` with the remedy.
    """
    if name in settings.models:
        return _configured(name, settings, progress)
    folder = folder_of(settings)
    if folder is None:
        known = ", ".join(sorted(settings.models)) or "none"
        raise NotFoundError(f"There is no model '{name:.100}'; this server has: {known}.")
    folders = folder.versions(name)
    model = load_model_settings(name, folder.settings_file(name), settings)
    wanted = _wanted(name, model, folders)
    labels = folder.labels(name, model.labels) if model.labels is not None else ()
    specs, origins, failures = {}, {}, {}
    for version in wanted:
        try:
            if version not in folders:
                raise ModelLoadError(f"Model '{name}' has no version {version} (setting version_policy).")
            files = None if model.engine == "echo" else network_in(folders[version])
            engine = engines.choose(files.format if files else "none", _device(model, settings), model.engine).name
            specs[version] = _spec(name, version, engine, model, settings, files=files, labels=labels)
            origins[version] = (specs[version], state_of(folders[version].iterdir()))
        except PaddlewheelError as error:
            failures[version] = error
        except OSError as error:
            failures[version] = ModelLoadError(f"Version {version} of model '{name}' cannot be read: {error}.")
    return Resolved(name, model, specs, origins, failures)


def _wanted(name: str, model: ModelSettings, folders: Mapping[str, Path]) -> list[str]:
    if isinstance(model.version_policy, tuple):
        return list(model.version_policy)
    if not folders:
        raise ModelLoadError(f"Model '{name}' has no versions; expected folders called 1, 2, … in it.")
    return list(folders) if model.version_policy == "all" else list(folders)[-1:]


def _configured(name: str, settings: Settings, progress: catalog.Progress) -> Resolved:
    """Look up a model of the settings: a pack, or an echo."""
    model = settings.models[name]
    engine = _configured_engine(name, settings)
    if engine == "echo":
        spec = _spec(name, ECHO_VERSION, engine, model, settings)
    else:
        pack = _pack_of(name, model)
        folder = _installed(pack, settings, progress)
        spec = _spec(name, pack.name, engine, model, settings, pack=pack.name, folder=folder)
    return Resolved(name, model, {spec.version: spec}, {spec.version: spec})


def _spec(name: str, version: str, engine: str, model: ModelSettings, settings: Settings, **source: Any) -> ModelSpec:
    pool = settings.pool[settings.pool_of(model)]
    return ModelSpec(
        name=name,
        version=version,
        pipeline=model.pipeline,
        engine=engine,
        device=pool.device,
        precision=_precision(model, pool.device),
        threads=thread_counts(pool, available_cores()),
        max_pixels=settings.limits.max_pixels,
        max_batch_size=_batch_size(model, pool.device),
        warm_up=tuple(
            {
                tensor: Filling(each.shape, None if each.value == "random" else each.value)
                for tensor, each in sample.items()
            }
            for sample in model.warm_up
        ),
        padding={tensor: Padding(each.axes, each.multiple, each.value) for tensor, each in model.padding.items()},
        options=model.options,
        engine_options=_engine_options(engine, model, settings),
        engine_logs=settings.telemetry.engine_logs,
        **source,
    )


def _precision(model: ModelSettings, device: str) -> str:
    """Return what to compute in: where the settings are silent, a network of one's own answers alike on every CPU.

    The catalog's packs are known to read the same in bf16; of a network that somebody brings, nobody knows.
    """
    return "fp32" if model.precision == "auto" and model.pipeline == "tensor" and device == "cpu" else model.precision


def _batch_size(model: ModelSettings, device: str) -> int:
    """Return the most rows of a batch; where the settings are silent, 1 for pictures on a CPU, else 8.

    Measured on a CPU, a picture costs the same alone and among eight, and in a batch it waits for all of them.
    """
    if model.batching.max_batch_size is not None:
        return model.batching.max_batch_size
    return _DEFAULT_BATCH_SIZE if model.pipeline == "tensor" or device != "cpu" else 1


def _device(model: ModelSettings, settings: Settings) -> str:
    return settings.pool[settings.pool_of(model)].device


def _engine_options(engine: str, model: ModelSettings, settings: Settings) -> dict[str, Any]:
    """Return the engine's settings; what OpenVINO compiles is kept, so that a worker that replaces another is quick."""
    if engine != "openvino":
        return model.engine_options
    return {"cache_dir": str(settings.server.data_dir / "cache" / "openvino"), **model.engine_options}


def engines_of(settings: Settings) -> set[str]:
    """Return the engines that the configured models will need, as far as can be told; pulls nothing."""
    names: set[str] = set()
    for name in settings.models:
        try:
            names.add(_configured_engine(name, settings))
        except PaddlewheelError:
            continue
    folder = folder_of(settings)
    for name in folder.names() if folder is not None else ():
        try:
            names.update(spec.engine for spec in resolve(name, settings).specs.values())
        except PaddlewheelError:
            continue
    return names


def _configured_engine(name: str, settings: Settings) -> str:
    """Return the real engine of a model of the settings; raises :class:`ModelLoadError`. Looks at no file."""
    model = settings.models[name]
    if model.engine == "echo":
        if model.pipeline != "tensor":
            raise ModelLoadError(f"Model '{name}': the echo engine goes with pipeline = \"tensor\".")
        return engines.choose("none", engine="echo").name
    pack = _pack_of(name, model)
    names = {engines.choose(each, _device(model, settings), model.engine).name for each in pack.formats}
    if len(names) > 1:
        raise ModelLoadError(f"Pack '{pack.name}' has several formats ({', '.join(pack.formats)}); set its engine.")
    return names.pop()


def _pack_of(name: str, model: ModelSettings) -> catalog.Pack:
    if model.pack is None or model.pipeline != "ocr":
        known = ", ".join(catalog.PACKS)
        raise ModelLoadError(f"Model '{name}' needs pipeline = \"ocr\" and a pack: one of {known}.")
    return catalog.get_pack(model.pack)


def _installed(pack: catalog.Pack, settings: Settings, progress: catalog.Progress) -> Path:
    try:
        installed = catalog.find(settings.models_dir, pack.name)
    except ModelLoadError as lacking:
        try:
            installed = catalog.pull(pack, settings.models_dir, progress)
        except ModelLoadError as error:
            raise ModelLoadError(f"{lacking.detail} {error.detail}") from error
    return installed.folder
