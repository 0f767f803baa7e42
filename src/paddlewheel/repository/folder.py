"""The models on disk: `<model>/<version>/` with a network's files, and `<model>/model.toml` beside the versions.

Reads only. A name that is not a model's or a version's, or a path that leads out of the folder, does not exist here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from paddlewheel.engines import ModelFiles
from paddlewheel.errors import ModelLoadError, NotFoundError

SETTINGS_FILE: Final = "model.toml"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_VERSION: Final = re.compile(r"[1-9]\d{0,17}")
_FORMATS: Final = {".onnx": "onnx", ".pdmodel": "paddle", ".json": "pir"}


class ModelFolder:
    """The folder of models that users bring."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """Return the names of the models, sorted."""
        return [entry.name for entry in self._entries(self.path, _NAME)]

    def __contains__(self, name: str) -> bool:
        """Tell whether there is a model called `name`."""
        return _NAME.fullmatch(name) is not None and self._is_inside(self.path / name)

    def settings_file(self, name: str) -> Path:
        """Return where the settings of the model called `name` are, if it has any."""
        return self.path / name / SETTINGS_FILE

    def labels(self, name: str, file: str) -> tuple[str, ...]:
        """Return the lines of a file in the folder of a model; raises :class:`ModelLoadError`."""
        path = self.path / name / file
        try:
            if not path.resolve().is_relative_to(self.path.resolve()):
                raise ModelLoadError(f"The labels '{path}' lie outside of the repository.")
            return tuple(path.read_text("utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise ModelLoadError(f"The labels '{path}' cannot be read: {error}.") from None

    def versions(self, name: str) -> dict[str, Path]:
        """Return the folders of the versions of `name`, the lowest first; raises :class:`NotFoundError`."""
        if name not in self:
            known = ", ".join(self.names()) or "none"
            raise NotFoundError(f"There is no model '{name:.100}' in the repository; it holds: {known}.")
        return {entry.name: entry for entry in sorted(self._entries(self.path / name, _VERSION), key=_number)}

    def state(self, name: str) -> tuple[tuple[str, int, int], ...]:
        """Return the path, size and time of each file of a model: it changes when the model does."""
        folder = self.path / name
        files = [file for file in folder.iterdir() if file.is_file()] if folder.is_dir() else []
        for version in self._entries(folder, _VERSION):
            files += [file for file in version.rglob("*") if file.is_file()]
        return state_of(files)

    def _entries(self, folder: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
        if not folder.is_dir():
            return
        for entry in sorted(folder.iterdir()):
            if pattern.fullmatch(entry.name) and self._is_inside(entry):
                yield entry

    def _is_inside(self, entry: Path) -> bool:
        return entry.is_dir() and entry.resolve().is_relative_to(self.path.resolve())


def state_of(files: Iterable[Path]) -> tuple[tuple[str, int, int], ...]:
    """Return the path, size and time of each of `files`."""
    found = []
    for file in sorted(files):
        status = file.stat()
        found.append((str(file), status.st_size, status.st_mtime_ns))
    return tuple(found)


def network_in(folder: Path) -> ModelFiles:
    """Return the one network in the folder of a version; raises :class:`ModelLoadError` if there is none or a choice.

    It is an ``.onnx`` file, or a ``.pdmodel`` or ``.json`` file with the ``.pdiparams`` file of the same name.
    """
    found = []
    for file in sorted(folder.iterdir()):
        network_format = _FORMATS.get(file.suffix)
        if network_format == "onnx":
            found.append(ModelFiles("onnx", file))
        elif network_format == "paddle":
            found.append(ModelFiles("paddle", file, file.with_suffix(".pdiparams")))
        elif network_format == "pir" and file.with_suffix(".pdiparams").exists():
            found.append(ModelFiles("pir", file, file.with_suffix(".pdiparams")))
    if len(found) == 1:
        return found[0]
    named = "inference.pdmodel or inference.json with inference.pdiparams, or model.onnx"
    if not found:
        raise ModelLoadError(f"Folder '{folder}' holds no network; expected {named}.")
    names = ", ".join(files.model.name for files in found)
    raise ModelLoadError(f"Folder '{folder}' holds several networks ({names}); expected one: {named}.")


def _number(folder: Path) -> int:
    return int(folder.name)
