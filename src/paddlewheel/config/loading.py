"""Reads the settings: file, then environment, then flags; remembers where each value came from."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import orjson
from pydantic import BaseModel, ValidationError

from paddlewheel.config.settings import ModelSettings, Settings
from paddlewheel.errors import ConfigurationError

ENV_PREFIX = "PADDLEWHEEL_"
DEFAULT_FILE = Path("paddlewheel.toml")
Tree = dict[str, Any]
KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings that hold, and for each leaf that is not a default, the source that set it."""

    settings: Settings
    sources: Mapping[KeyPath, str]

    def described(self) -> Iterator[tuple[str, str, str]]:
        """Yield (dotted key, value as JSON, source) for every leaf."""
        for path, value in _leaves(self.settings.model_dump(mode="json")):
            yield ".".join(path), orjson.dumps(value).decode(), self.sources.get(path, "default")


def load_settings(
    file: Path | None = None,
    overrides: Sequence[tuple[str, str, Any]] = (),
    environ: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Read the settings tree.

    `file` must exist when given; without one, ``paddlewheel.toml`` is read if it lies in the working directory.
    `overrides` are (dotted key, source name, value) and win over everything. Raises :class:`ConfigurationError` that
    names each wrong key, where it was set, and the nearest right one.
    """
    layers: list[tuple[str, Tree]] = []
    if file is not None or DEFAULT_FILE.is_file():
        file = file or DEFAULT_FILE
        layers.append((str(file), _read_toml(file)))
    tree: Tree = {}
    sources: dict[KeyPath, str] = {}
    for source, layer in layers:
        for path, value in _leaves(layer):
            _put(tree, path, value, sources, source)
    for variable, value in sorted((os.environ if environ is None else environ).items()):
        if variable.startswith(ENV_PREFIX):
            path = tuple(variable.removeprefix(ENV_PREFIX).lower().split("__"))
            _put(tree, path, _parse(value), sources, variable)
    for dotted, source, value in overrides:
        _put(
            tree,
            tuple(dotted.split(".")),
            _parse(value) if isinstance(value, str) else value,
            sources,
            source,
        )
    try:
        return LoadedSettings(Settings.model_validate(tree), sources)
    except ValidationError as error:
        raise ConfigurationError(_explain(error, sources)) from None


def load_model_settings(name: str, file: Path, settings: Settings) -> ModelSettings:
    """Read the settings of one model of the repository; without the file, the defaults of a tensor model hold.

    Raises :class:`ConfigurationError` as :func:`load_settings` does.
    """
    given = {"pipeline": "tensor", **(_read_toml(file) if file.exists() else {})}
    pools = {pool: {"device": each.device} for pool, each in settings.pool.items()}
    try:
        return Settings.model_validate({"models": {name: given}, "pool": pools}).models[name]
    except ValidationError as error:
        raise ConfigurationError(_explain(error, {("models", name): str(file)})) from None


def _read_toml(file: Path) -> Tree:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"The settings file {file} does not exist.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"The settings file {file} cannot be read: {error}") from None


def _parse(text: str) -> Any:
    """Return JSON where `text` is JSON (numbers, booleans, lists), else the text itself."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _leaves(tree: Tree, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _put(tree: Tree, path: KeyPath, value: Any, sources: dict[KeyPath, str], source: str) -> None:
    for key in path[:-1]:
        branch = tree.get(key)
        if not isinstance(branch, dict):
            branch = tree[key] = {}
        tree = branch
    tree[path[-1]] = value
    sources[path] = source


def _explain(error: ValidationError, sources: Mapping[KeyPath, str]) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        if problem["type"] == "default_factory_not_called":
            continue  # it only follows from another problem
        path = tuple(str(part) for part in problem["loc"] if part != "[key]")
        origin = next(
            (text for where, text in sources.items() if path[: len(where)] == where or where[: len(path)] == path), None
        )
        at = f" (from {origin})" if origin else ""
        if problem["type"] == "extra_forbidden":
            lines.append(f"{'.'.join(path)}{at}: no such setting{_nearest(path)}.")
        else:
            given = "" if isinstance(problem["input"], dict) else f", got {problem['input']!r}"
            lines.append(f"{'.'.join(path)}{at}: {problem['msg']}{given}.")
    return "Wrong settings:\n  " + "\n  ".join(lines)


def _nearest(path: KeyPath) -> str:
    known = [".".join((*path[:-1], field)) for field in _fields_at(path[:-1])]
    near = difflib.get_close_matches(".".join(path), known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(known)}"


def _fields_at(path: KeyPath) -> Sequence[str]:
    model: type[BaseModel] | None = Settings
    keys = list(path)
    while keys and model is not None:
        annotation = model.model_fields[keys.pop(0)].annotation
        if get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]
            keys = keys[1:]
        model = _section_in(annotation)
    return tuple(model.model_fields) if model else ()


def _section_in(annotation: Any) -> type[BaseModel] | None:
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return next((option for option in options if isinstance(option, type) and issubclass(option, BaseModel)), None)
