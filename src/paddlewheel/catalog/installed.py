"""Packs on disk: a folder of the models folder, called like the pack, with the files that the catalog names.

Looking never writes and takes no lock: a folder is put in place whole, so it is seen either not at all or complete.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from paddlewheel.catalog.pack import NetworkFormat, Pack, PackFile, Role
from paddlewheel.catalog.packs import get_pack
from paddlewheel.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class InstalledNetwork:
    """The files of one network; `parameters` is None for ONNX."""

    format: NetworkFormat
    model: Path
    parameters: Path | None


@dataclass(frozen=True, slots=True)
class InstalledPack:
    """A pack whose files are in `folder`."""

    pack: Pack
    folder: Path

    @property
    def dictionary(self) -> Path:
        """The characters of the recognition network, for :func:`~paddlewheel.catalog.read_dictionary`."""
        return self.folder / self.pack.dictionary.file.name

    def network(self, role: Role) -> InstalledNetwork:
        """Return the files of the network that plays `role`."""
        network = self.pack.networks[role]
        parameters = None if network.parameters is None else self.folder / network.parameters
        return InstalledNetwork(network.format, self.folder / network.model, parameters)

    def faults(self) -> tuple[str, ...]:
        """Read every file and return what is wrong with which, nothing where the pack is as published."""
        return tuple(fault for file in self.pack.files if (fault := fault_of(self.folder / file.name, file)))


def find(models_dir: Path, name: str) -> InstalledPack:
    """Return the pulled pack called `name`; looks at names and sizes, not at contents.

    Raises :class:`ModelLoadError` where it is not there or lacks files, and :class:`ConfigurationError` where there is
    no such pack.
    """
    pack = get_pack(name)
    installed = InstalledPack(pack, models_dir / name)
    if not installed.folder.is_dir():
        raise ModelLoadError(f"Pack '{name}' is not in {models_dir}. Get it with: paddlewheel models pull {name}")
    _refuse(installed, [fault for file in pack.files if (fault := _size_fault(installed.folder / file.name, file))])
    return installed


def verify(models_dir: Path, name: str) -> InstalledPack:
    """Return the pulled pack called `name` after reading every byte of it; raises like :func:`find`."""
    installed = find(models_dir, name)
    _refuse(installed, installed.faults())
    return installed


def fault_of(path: Path, expected: PackFile) -> str | None:
    """Return what is wrong with the file at `path`, None if it is what `expected` says, byte for byte."""
    fault = _size_fault(path, expected)
    if fault is None:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != expected.sha256:
            return f"{path.name} has sha256 {found[:12]}…, expected {expected.sha256[:12]}…"
    return fault


def _size_fault(path: Path, expected: PackFile) -> str | None:
    if not path.is_file():
        return f"{path.name} is missing"
    size = path.stat().st_size
    return None if size == expected.size else f"{path.name} has {size} bytes, expected {expected.size}"


def _refuse(installed: InstalledPack, faults: list[str] | tuple[str, ...]) -> None:
    if faults:
        name = installed.pack.name
        raise ModelLoadError(
            f"Pack '{name}' in {installed.folder} is damaged: {'; '.join(faults)}. "
            f"Mend it with: paddlewheel models pull {name}"
        )
