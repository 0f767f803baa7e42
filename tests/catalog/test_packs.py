from __future__ import annotations

import re
from collections import Counter
from pathlib import Path, PurePath

import numpy as np
import pytest

from paddlewheel.catalog import PACKS, Pack, find, get_pack, pull, read_dictionary, verify
from paddlewheel.engines import LoadOptions, ModelFiles, choose, load
from paddlewheel.errors import ConfigurationError, ModelLoadError

EVERY_PACK = pytest.mark.parametrize("pack", PACKS.values(), ids=PACKS)


@EVERY_PACK
def test_a_pack_is_sound(pack: Pack) -> None:
    """Every file has a name of its own that stays in the folder, a size and a hash; networks name files of the pack."""
    names = [file.name for file in pack.files]
    assert Counter(names).most_common(1)[0][1] == 1
    assert all(PurePath(name).name == name for name in names)
    assert all(file.size > 0 and re.fullmatch("[0-9a-f]{64}", file.sha256) for file in pack.files)
    used = {file for network in pack.networks.values() for file in (network.model, network.parameters) if file}
    assert {*used, pack.dictionary.origin} <= set(names)
    assert set(pack.networks) == {"detection", "orientation", "recognition"}


@EVERY_PACK
def test_a_wheel_is_the_same_in_every_pack(pack: Pack) -> None:
    """A package is named with one version and one size wherever packs draw from it."""
    for source in pack.sources:
        for other in (other for each in PACKS.values() for other in each.sources if other.package == source.package):
            assert (other.version, other.download_size) == (source.version, source.download_size)


def test_an_unknown_pack_names_the_nearest() -> None:
    """A slip of the pen is answered with the right name."""
    with pytest.raises(ConfigurationError, match="Did you mean ppocrv6-small"):
        get_pack("ppocr-v6-smal")


def test_a_pack_that_is_not_here_names_the_command(tmp_path: Path) -> None:
    """Looking for a pack that was never pulled says how to get it, and makes no folder."""
    with pytest.raises(ModelLoadError, match="paddlewheel models pull ppocrv6-tiny"):
        find(tmp_path / "none", "ppocrv6-tiny")
    assert not (tmp_path / "none").exists()


def test_damage_is_named_by_file(real_models_dir: Path, tmp_path: Path) -> None:
    """`find` sees missing and cut files, `verify` also changed bytes; both name the files and the command."""
    whole = pull(PACKS["ppocrv6-tiny"], real_models_dir).folder
    folder = tmp_path / "ppocrv6-tiny"
    folder.mkdir()
    for file in whole.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    verify(tmp_path, "ppocrv6-tiny")
    (folder / "detection.onnx").write_bytes(b"x" + (whole / "detection.onnx").read_bytes()[1:])
    find(tmp_path, "ppocrv6-tiny")
    with pytest.raises(ModelLoadError, match=r"detection\.onnx has sha256 .*models pull ppocrv6-tiny"):
        verify(tmp_path, "ppocrv6-tiny")
    (folder / "detection.onnx").unlink()
    (folder / "recognition.onnx").write_bytes(b"")
    with pytest.raises(ModelLoadError, match=r"detection\.onnx is missing; recognition\.onnx has 0 bytes"):
        find(tmp_path, "ppocrv6-tiny")


@EVERY_PACK
def test_the_dictionary_fits_the_network(pack: Pack, real_models_dir: Path) -> None:
    """A recognition network has one class for each entry, one for the blank and one for PP-OCR's space."""
    network = pull(pack, real_models_dir).network("recognition")
    try:
        engine = choose(network.format)
    except ModelLoadError as error:
        pytest.skip(error.detail)
    predictor = load(ModelFiles(network.format, network.model, network.parameters), engine.name, LoadOptions())
    (answer,) = predictor.run({predictor.inputs[0].name: np.zeros((1, 3, 48, 320), np.float32)}).values()
    entries = read_dictionary(find(real_models_dir, pack.name).dictionary)
    assert answer.shape[-1] == len(entries) + 2
    assert len(set(entries)) == len(entries)
    assert {"中", "国", "A", "z", "0", "9", "。", "\u3000"} <= set(entries)
