import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from paddlewheel.engines import Format, LoadOptions, ModelFiles, Predictor, load
from paddlewheel.engines.cpu import has_native_bf16
from paddlewheel.errors import InvalidArgumentError, ModelLoadError
from paddlewheel.inference import TensorSpec

FP32 = LoadOptions(precision="fp32", threads=(1, 2))
PAIRS: list[tuple[str, Format]] = [
    ("openvino", "onnx"),
    ("onnxruntime", "onnx"),
    ("openvino", "paddle"),
    ("paddle", "paddle"),
    ("paddle", "pir"),
]


@pytest.fixture(scope="session")
def files(onnx_files: ModelFiles, paddle_files: ModelFiles, pir_files: ModelFiles) -> dict[Format, ModelFiles]:
    """Return a line recogniser in each format."""
    return {"onnx": onnx_files, "paddle": paddle_files, "pir": pir_files}


@pytest.fixture(scope="session", params=PAIRS, ids="-".join)
def predictor(request: pytest.FixtureRequest, files: dict[Format, ModelFiles]) -> Predictor:
    """Return a predictor of each engine for each format that it reads."""
    engine, format_ = request.param
    return load(files[format_], engine, FP32)


def _only(outputs: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    (output,) = outputs.values()
    return output


def test_engines_agree_on_a_recogniser(paddle_files: ModelFiles, line: npt.NDArray[np.float32]) -> None:
    """OpenVINO and Paddle give the same answer for the same files."""
    ours, theirs = (_only(load(paddle_files, each, FP32).run({"x": line})) for each in ("openvino", "paddle"))
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_engines_and_formats_agree_on_a_classifier(
    paddle_classifier: ModelFiles, onnx_classifier: ModelFiles, line: npt.NDArray[np.float32]
) -> None:
    """All three engines give the same answer for one network, whichever format it is in."""
    pairs = (
        ("openvino", paddle_classifier),
        ("paddle", paddle_classifier),
        ("openvino", onnx_classifier),
        ("onnxruntime", onnx_classifier),
    )
    picture = np.ascontiguousarray(line[..., :192])
    answers = [_only(load(files, engine, FP32).run({"x": picture})) for engine, files in pairs]
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], atol=1e-3)


def test_specs_and_facts_are_those_of_the_network(predictor: Predictor) -> None:
    """A predictor knows its ports before its first run, and where and in what it computes."""
    assert predictor.inputs == (TensorSpec("x", "FP32", (-1, 3, 48, -1)),)
    (output,) = predictor.outputs
    assert (output.datatype, output.shape[:2]) == ("FP32", (-1, -1))
    assert output.shape[2] > 6000
    assert (predictor.device, predictor.precision) == ("cpu", "fp32")


def test_thread_counts_give_the_same_answer(predictor: Predictor, line: npt.NDArray[np.float32]) -> None:
    """The number of threads changes how long a run takes, not what it returns."""
    np.testing.assert_allclose(
        _only(predictor.run({"x": line}, 1)), _only(predictor.run({"x": line}, 2)), rtol=0, atol=1e-5
    )


def test_a_later_run_leaves_earlier_outputs_alone(predictor: Predictor, line: npt.NDArray[np.float32]) -> None:
    """Outputs belong to the caller, also when shapes repeat."""
    first = _only(predictor.run({"x": line}))
    kept = first.copy()
    second = _only(predictor.run({"x": -line}))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, kept)


def test_read_only_and_strided_inputs_are_taken(predictor: Predictor, line: npt.NDArray[np.float32]) -> None:
    """Arrays that lie in shared memory (read-only) or are views give the answer of a plain copy."""
    expected = _only(predictor.run({"x": line[::-1].copy()}))
    view = line[::-1]
    view.flags.writeable = False
    np.testing.assert_array_equal(_only(predictor.run({"x": view})), expected)


def test_wrong_inputs_are_refused_by_name(predictor: Predictor, line: npt.NDArray[np.float32]) -> None:
    """A missing, misnamed, miscast or misshapen input is the caller's fault; nothing is guessed or reused."""
    predictor.run({"x": line})
    with pytest.raises(InvalidArgumentError, match="takes inputs 'x'; got none"):
        predictor.run({})
    with pytest.raises(InvalidArgumentError, match="takes inputs 'x'; got 'y'"):
        predictor.run({"y": line})
    with pytest.raises(InvalidArgumentError, match="dtype float64; expected"):
        predictor.run({"x": line.astype(np.float64)})
    with pytest.raises(InvalidArgumentError, match=r"shape \[2, 3, 47, 320\]"):
        predictor.run({"x": line[:, :, :47]})


@pytest.mark.parametrize("engine", ["openvino", "paddle"])
def test_bf16_is_used_only_where_the_cpu_has_it(engine: str, paddle_files: ModelFiles) -> None:
    """Asking for bf16 gives bf16 or an error with a remedy, never fp32 without a word."""
    options = LoadOptions(precision="bf16")
    if has_native_bf16():
        assert load(paddle_files, engine, options).precision == "bf16"
    else:
        with pytest.raises(ModelLoadError, match="precision = 'auto' or 'fp32'"):
            load(paddle_files, engine, options)


def test_auto_precision_on_openvino_is_what_the_cpu_has(paddle_files: ModelFiles) -> None:
    """`auto` is bf16 on CPUs that compute in it, fp32 on others."""
    assert load(paddle_files, "openvino", LoadOptions()).precision == ("bf16" if has_native_bf16() else "fp32")


@pytest.mark.parametrize(("engine", "format_"), PAIRS)
def test_a_precision_that_an_engine_lacks_is_refused(
    engine: str, format_: Format, files: dict[Format, ModelFiles]
) -> None:
    """int8 is a matter of the model's file for all engines on a CPU."""
    with pytest.raises(ModelLoadError, match="int8"):
        load(files[format_], engine, LoadOptions(precision="int8"))


@pytest.mark.parametrize(("engine", "format_"), PAIRS)
def test_an_unknown_option_is_refused_with_the_known_ones(
    engine: str, format_: Format, files: dict[Format, ModelFiles]
) -> None:
    """A typing error in engine_options does not pass unseen."""
    with pytest.raises(ModelLoadError, match=f"'{engine}' has no option 'onndn'; expected one of: "):
        load(files[format_], engine, LoadOptions(options={"onndn": False}))


def test_an_option_of_the_wrong_type_is_refused(paddle_files: ModelFiles) -> None:
    """The error names option and type."""
    with pytest.raises(ModelLoadError, match=r"Expected `bool`, got `str` - at `\$.onednn`"):
        load(paddle_files, "paddle", LoadOptions(options={"onednn": "no"}))


def test_tensorrt_on_a_cpu_is_refused(paddle_files: ModelFiles) -> None:
    """TensorRT is not quietly left out."""
    with pytest.raises(ModelLoadError, match="TensorRT needs a GPU"):
        load(paddle_files, "paddle", LoadOptions(options={"tensorrt": True}))


def test_paddle_runs_without_onednn_when_told_to(paddle_files: ModelFiles, line: npt.NDArray[np.float32]) -> None:
    """The switch for networks that oneDNN cannot run changes no answer."""
    plain = load(paddle_files, "paddle", LoadOptions(options={"onednn": False}))
    np.testing.assert_allclose(
        _only(plain.run({"x": line})), _only(load(paddle_files, "paddle", FP32).run({"x": line})), atol=1e-4
    )


def test_an_input_that_fails_with_and_without_onednn_is_not_blamed_on_it(
    paddle_detector: ModelFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """A picture whose sides do not fit the network raises, warns of nothing, and the next one is answered."""
    detector = load(paddle_detector, "paddle", FP32)
    with caplog.at_level(logging.WARNING), pytest.raises((RuntimeError, ValueError, OSError)):
        detector.run({"x": np.zeros((1, 3, 40, 40), np.float32)})
    assert not caplog.records
    assert _only(detector.run({"x": np.zeros((1, 3, 64, 64), np.float32)})).shape == (1, 1, 64, 64)


def test_a_compiled_network_is_kept_and_used_again(
    onnx_files: ModelFiles, line: npt.NDArray[np.float32], tmp_path: Path
) -> None:
    """With `cache_dir`, a second load reads what the first compiled, and answers the same."""
    options = LoadOptions(threads=(1, 2), options={"cache_dir": str(tmp_path / "cache")})
    first = _only(load(onnx_files, "openvino", options).run({"x": line}))
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    second = _only(load(onnx_files, "openvino", options).run({"x": line}))
    assert kept
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == kept
    np.testing.assert_array_equal(first, second)


_QUIET = """
import sys
from pathlib import Path
import numpy as np
from paddlewheel.engines import LoadOptions, ModelFiles, load
engine, format, model, parameters = sys.argv[1:]
files = ModelFiles(format, Path(model), Path(parameters) if parameters else None)
load(files, engine, LoadOptions(threads=(1, 2))).run({"x": np.zeros((1, 3, 48, 320), np.float32)})
"""


@pytest.mark.parametrize(("engine", "format_"), PAIRS)
def test_libraries_say_nothing_unless_asked(engine: str, format_: Format, files: dict[Format, ModelFiles]) -> None:
    """Loading and running write nothing to standard output and error, warnings of the import included."""
    chosen = files[format_]
    arguments = (engine, format_, str(chosen.model), str(chosen.parameters or ""))
    done = subprocess.run([sys.executable, "-c", _QUIET, *arguments], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


_FORK = """
import json, multiprocessing, sys
from pathlib import Path
import numpy as np
from paddlewheel.engines import LoadOptions, ModelFiles, load, preload

preload(["openvino", "onnxruntime", "paddle"])
loads = [(engine, ModelFiles(format, Path(model), Path(parameters) if parameters else None))
         for engine, format, model, parameters in json.loads(sys.argv[1])]
line = np.load(sys.argv[2])

def work(answers):
    options = LoadOptions(precision="fp32", threads=(1, 2))
    for engine, files in loads:
        (output,) = load(files, engine, options).run({"x": line}).values()
        answers.send(output.argmax(-1).tolist())

context = multiprocessing.get_context("fork")
pipes = [context.Pipe(duplex=False) for _ in range(2)]
children = [context.Process(target=work, args=(sender,)) for _, sender in pipes]
for child in children:
    child.start()
print(json.dumps([[receiver.recv() for _ in loads] for receiver, _ in pipes]))
for child in children:
    child.join()
    assert child.exitcode == 0
"""


def test_forked_children_of_a_preloaded_parent_answer_right(
    files: dict[Format, ModelFiles], line: npt.NDArray[np.float32], tmp_path: Path
) -> None:
    """Two workers forked from a process that imported all libraries load every engine and agree with this one."""
    np.save(tmp_path / "line.npy", line)
    loads = [
        (engine, format_, str(files[format_].model), str(files[format_].parameters or "")) for engine, format_ in PAIRS
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORK, json.dumps(loads), tmp_path / "line.npy"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    expected = [
        _only(load(files[format_], engine, FP32).run({"x": line})).argmax(-1).tolist() for engine, format_ in PAIRS
    ]
    assert json.loads(done.stdout) == [expected, expected]
