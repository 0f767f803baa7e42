import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paddlewheel.engines import Format, LoadOptions, ModelFiles, load
from paddlewheel.errors import ModelLoadError

READERS: list[tuple[str, Format]] = [
    ("openvino", "onnx"),
    ("onnxruntime", "onnx"),
    ("openvino", "paddle"),
    ("paddle", "paddle"),
    ("paddle", "pir"),
]
WITH_PARAMETERS = [pair for pair in READERS if pair[1] != "onnx"]

_DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "is empty"),
    "half": (lambda content: content[: len(content) // 2], "damaged"),
    "without its last bytes": (lambda content: content[:-7], "damaged"),
    "random": (lambda _: os.urandom(5000), "damaged"),
    "an error page": (lambda _: b"<html>404 not found</html>" * 20, "damaged"),
    "a pointer of a large-file store": (lambda _: b"version 1\noid sha256:0\nsize 9\n", "damaged"),
}


@pytest.fixture
def copy(
    tmp_path: Path, onnx_files: ModelFiles, paddle_files: ModelFiles, pir_files: ModelFiles
) -> Callable[[Format], ModelFiles]:
    """Return a function that copies the files of a format to where they may be damaged."""
    originals = {"onnx": onnx_files, "paddle": paddle_files, "pir": pir_files}

    def copied(format_: Format) -> ModelFiles:
        original = originals[format_]
        paths = [path for path in (original.model, original.parameters) if path is not None]
        for path in paths:
            (tmp_path / path.name).write_bytes(path.read_bytes())
        return ModelFiles(format_, *(tmp_path / path.name for path in paths))

    return copied


@pytest.mark.parametrize(("engine", "format_"), READERS)
@pytest.mark.parametrize("damage", _DAMAGES)
def test_a_damaged_model_is_named(
    engine: str, format_: Format, damage: str, copy: Callable[[Format], ModelFiles]
) -> None:
    """The error names the file, what is wrong and the remedy; the process lives."""
    files = copy(format_)
    change, word = _DAMAGES[damage]
    files.model.write_bytes(change(files.model.read_bytes()))
    with pytest.raises(ModelLoadError, match=f"{files.model}.*{word}.*pull or copy the model again"):
        load(files, engine, LoadOptions())


@pytest.mark.parametrize(("engine", "format_"), WITH_PARAMETERS)
@pytest.mark.parametrize("damage", _DAMAGES)
def test_damaged_parameters_are_named(
    engine: str, format_: Format, damage: str, copy: Callable[[Format], ModelFiles]
) -> None:
    """Likewise for the file of parameters."""
    files = copy(format_)
    assert files.parameters is not None
    change, word = _DAMAGES[damage]
    files.parameters.write_bytes(change(files.parameters.read_bytes()))
    with pytest.raises(ModelLoadError, match=f"{files.parameters}.*{word}.*pull or copy the model again"):
        load(files, engine, LoadOptions())


@pytest.mark.parametrize(("engine", "format_"), READERS)
def test_a_missing_model_is_named(engine: str, format_: Format, copy: Callable[[Format], ModelFiles]) -> None:
    """A path that leads nowhere is not an error of the library."""
    files = copy(format_)
    files.model.unlink()
    with pytest.raises(ModelLoadError, match=f"{files.model}' does not exist"):
        load(files, engine, LoadOptions())


@pytest.mark.parametrize(("engine", "format_"), WITH_PARAMETERS)
def test_missing_parameters_are_named(engine: str, format_: Format, copy: Callable[[Format], ModelFiles]) -> None:
    """Neither a file that is gone nor one that was never named is left to the library."""
    files = copy(format_)
    assert files.parameters is not None
    files.parameters.unlink()
    with pytest.raises(ModelLoadError, match=f"{files.parameters}' does not exist"):
        load(files, engine, LoadOptions())
    with pytest.raises(ModelLoadError, match=f"{files.model}' has no parameter file"):
        load(ModelFiles(format_, files.model), engine, LoadOptions())


@pytest.mark.parametrize(("engine", "format_"), WITH_PARAMETERS)
def test_swapped_files_are_named(engine: str, format_: Format, copy: Callable[[Format], ModelFiles]) -> None:
    """A model and parameters that have each other's place are refused at the model."""
    files = copy(format_)
    assert files.parameters is not None
    model, parameters = files.model.read_bytes(), files.parameters.read_bytes()
    files.model.write_bytes(parameters)
    files.parameters.write_bytes(model)
    with pytest.raises(ModelLoadError, match=f"{files.model}' is damaged or not a Paddle program"):
        load(files, engine, LoadOptions())


@pytest.mark.parametrize(("engine", "format_"), WITH_PARAMETERS)
def test_parameters_of_another_model_are_refused(
    engine: str, format_: Format, copy: Callable[[Format], ModelFiles], paddle_classifier: ModelFiles
) -> None:
    """Whole parameters that belong to another network do not give wrong answers or end the process."""
    files = copy(format_)
    assert files.parameters is not None
    assert paddle_classifier.parameters is not None
    files.parameters.write_bytes(paddle_classifier.parameters.read_bytes())
    with pytest.raises(ModelLoadError, match=f"{files.parameters}' belongs to another model"):
        load(files, engine, LoadOptions())


def test_json_that_is_no_program_is_refused(copy: Callable[[Format], ModelFiles]) -> None:
    """A settings file is JSON, too."""
    files = copy("pir")
    files.model.write_text('{"Global": {"model_name": "x"}}')
    with pytest.raises(ModelLoadError, match="JSON, but not a PIR program"):
        load(files, "paddle", LoadOptions())
