"""Turns the settings of a model into what workers need to load it: a real engine, and files that are on disk."""

from __future__ import annotations

from typing import Any

from paddlewheel import catalog, engines
from paddlewheel.config import ModelSettings, Settings
from paddlewheel.errors import ModelLoadError
from paddlewheel.pipelines import ModelSpec
from paddlewheel.workers import available_cores, thread_counts

ECHO_VERSION = "1"


def _silent(_: catalog.Step) -> None:
    """Report no progress."""


def resolve(name: str, settings: Settings, progress: catalog.Progress = _silent) -> ModelSpec:
    """Return the spec of the model called `name`, after pulling its pack if it is not there.

    Blocks while it downloads. Raises :class:`ModelLoadError` or :class:`ConfigurationError` with the remedy.
    """
    model = settings.models[name]
    pool = settings.pool[model.pool]
    engine = choose_engine(name, settings)
    folder, version = (None, ECHO_VERSION) if engine == "echo" else _pack(_pack_of(name, model), settings, progress)
    return ModelSpec(
        name=name,
        version=version,
        pipeline=model.pipeline,
        engine=engine,
        folder=folder,
        device=pool.device,
        precision=model.precision,
        threads=thread_counts(pool, available_cores()),
        max_pixels=settings.limits.max_pixels,
        options=model.options,
        engine_options=_engine_options(engine, model, settings),
        engine_logs=settings.telemetry.engine_logs,
    )


def _engine_options(engine: str, model: ModelSettings, settings: Settings) -> dict[str, Any]:
    """Return the engine's settings; what OpenVINO compiles is kept, so that a worker that replaces another is quick."""
    if engine != "openvino":
        return model.engine_options
    return {"cache_dir": str(settings.server.data_dir / "cache" / "openvino"), **model.engine_options}


def choose_engine(name: str, settings: Settings) -> str:
    """Return the real engine of the model called `name`; raises :class:`ModelLoadError`. Looks at no file."""
    model = settings.models[name]
    if model.engine == "echo":
        if model.pipeline != "tensor":
            raise ModelLoadError(f"Model '{name}': the echo engine goes with pipeline = \"tensor\".")
        return engines.choose("none", engine="echo").name
    pack = _pack_of(name, model)
    device = settings.pool[model.pool].device
    names = {engines.choose(each, device, model.engine).name for each in pack.formats}
    if len(names) > 1:
        raise ModelLoadError(f"Pack '{pack.name}' has several formats ({', '.join(pack.formats)}); set its engine.")
    return names.pop()


def _pack_of(name: str, model: ModelSettings) -> catalog.Pack:
    if model.pack is None or model.pipeline != "ocr":
        known = ", ".join(catalog.PACKS)
        raise ModelLoadError(f"Model '{name}' needs pipeline = \"ocr\" and a pack: one of {known}.")
    return catalog.get_pack(model.pack)


def _pack(pack: catalog.Pack, settings: Settings, progress: catalog.Progress) -> tuple[str, str]:
    try:
        installed = catalog.find(settings.models_dir, pack.name)
    except ModelLoadError as lacking:
        try:
            installed = catalog.pull(pack, settings.models_dir, progress)
        except ModelLoadError as error:
            raise ModelLoadError(f"{lacking.detail} {error.detail}") from error
    return str(installed.folder), pack.name
