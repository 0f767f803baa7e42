import subprocess
import sys

import pytest

from paddlewheel.engines import Format, LoadOptions, ModelFiles, choose, load
from paddlewheel.errors import ModelLoadError


@pytest.mark.parametrize(("format_", "expected"), [("onnx", "openvino"), ("paddle", "openvino"), ("pir", "paddle")])
def test_auto_takes_the_fastest_engine_that_reads_the_format(format_: Format, expected: str) -> None:
    """On a CPU, `auto` is OpenVINO where it reads the format, else Paddle."""
    assert choose(format_).name == expected


def test_the_reason_names_what_was_passed_over() -> None:
    """A reader of `models show` learns why the fastest engine was not taken."""
    assert choose("pir").reason == "It is the fastest engine for pir models on cpu (openvino does not read pir models)."
    assert choose("onnx").reason == "It is the fastest engine for onnx models on cpu."
    assert choose("onnx", engine="onnxruntime").reason == "The settings ask for it."


def test_echo_comes_only_when_asked_for() -> None:
    """A model without files is served by the echo, and by nothing else, when the settings name it."""
    assert choose("none", engine="echo").name == "echo"
    with pytest.raises(ModelLoadError, match="No engine"):
        choose("none")


@pytest.mark.parametrize("engine", ["auto", "openvino", "onnxruntime", "paddle"])
@pytest.mark.parametrize("format_", ["onnx", "paddle", "pir"])
def test_a_gpu_that_is_absent_is_refused_with_a_remedy(engine: str, format_: Format) -> None:
    """No engine answers for a GPU that is not there, and the error says what to set."""
    with pytest.raises(ModelLoadError, match=r"gpu:7|does not read") as caught:
        choose(format_, "gpu:7", engine)
    assert "device = 'cpu'" in caught.value.detail or "does not read" in caught.value.detail


def test_loading_for_an_absent_gpu_never_falls_back(onnx_files: ModelFiles) -> None:
    """Loading refuses, too, for a caller that did not choose."""
    with pytest.raises(ModelLoadError, match=r"onnxruntime-gpu.*device = 'cpu'"):
        load(onnx_files, "onnxruntime", LoadOptions(device="gpu:0"))


def test_an_engine_that_does_not_read_the_format_is_refused() -> None:
    """Asking OpenVINO for a PIR model says what does not fit."""
    with pytest.raises(ModelLoadError, match="openvino does not read pir"):
        choose("pir", engine="openvino")


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    """A typing error in `engine` is met with the list."""
    with pytest.raises(ModelLoadError, match="no engine 'openvno'; expected one of: auto, openvino, paddle"):
        choose("onnx", engine="openvno")


_WITHOUT_LIBRARIES = """
import sys
for name in ("openvino", "paddle", "onnxruntime"):
    sys.modules[name] = None
from paddlewheel.engines import choose
from paddlewheel.errors import ModelLoadError
assert choose("none", engine="echo").name == "echo"
for format in ("onnx", "pir"):
    try:
        choose(format)
    except ModelLoadError as error:
        print(error.detail)
"""


def test_without_any_library_the_remedies_are_named() -> None:
    """The package imports with none of the libraries, and says how to install one."""
    done = subprocess.run([sys.executable, "-c", _WITHOUT_LIBRARIES], capture_output=True, text=True, check=True)
    assert "pip install openvino" in done.stdout
    assert "pip install 'paddlewheel[onnxruntime]'" in done.stdout
    assert "pip install 'paddlewheel[paddle]'" in done.stdout


def test_importing_engines_imports_no_library() -> None:
    """The front process pays nothing for engines that it does not run."""
    code = "import sys, paddlewheel.engines; print({'paddle', 'openvino', 'onnxruntime'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
