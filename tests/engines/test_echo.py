import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddlewheel.engines import LoadOptions, ModelFiles, Predictor, load
from paddlewheel.engines.echo import EXIT_STATUS
from paddlewheel.errors import InvalidArgumentError, ModelLoadError
from paddlewheel.inference import TensorSpec

ROWS = np.array([[1, 2], [3, 4]], np.float32)


def _echo(**options: Any) -> Predictor:
    return load(ModelFiles("none", Path()), "echo", LoadOptions(options=options))


def test_returns_its_input_as_the_callers_own() -> None:
    """The answer equals the input and is another array."""
    rows = ROWS.copy()
    output = _echo().run({"input": rows})["output"]
    rows[:] = 0
    np.testing.assert_array_equal(output, ROWS)


def test_ports_of_any_datatype_are_mapped_by_position() -> None:
    """Two ports come back under the two output names."""
    echo = _echo(
        ports=[{"name": "a", "datatype": "INT64", "shape": [-1]}, {"name": "b", "datatype": "BOOL", "shape": [1]}],
        outputs=["c", "d"],
    )
    assert echo.outputs == (TensorSpec("c", "INT64", (-1,)), TensorSpec("d", "BOOL", (1,)))
    outputs = echo.run({"a": np.array([2**53 + 1]), "b": np.array([True])})
    assert (outputs["c"].tolist(), outputs["d"].tolist()) == ([2**53 + 1], [True])


def test_ports_and_outputs_that_do_not_pair_are_refused() -> None:
    """Each port needs the name of its output."""
    with pytest.raises(ModelLoadError, match="2 outputs for 1 ports"):
        _echo(outputs=["c", "d"])


def test_waits_as_told() -> None:
    """`delay_s` and the largest element both hold the answer back."""
    echo, before = _echo(delay_s=0.05, delay_from_input=True), time.monotonic()
    echo.run({"input": np.array([[0.05, 0.01]], np.float32)})
    assert time.monotonic() - before >= 0.1


def test_fails_on_a_value_and_not_on_others() -> None:
    """The poisoned item of a batch can be told from its mates."""
    echo = _echo(fail_on=13)
    echo.run({"input": ROWS})
    with pytest.raises(ValueError, match="told to fail on 13"):
        echo.run({"input": ROWS + 10})


def test_returns_special_values() -> None:
    """NaN and infinity can be had as answers."""
    assert np.isnan(_echo(replace_with=float("nan")).run({"input": ROWS})["output"]).all()
    assert np.isinf(_echo(replace_with=float("inf")).run({"input": ROWS})["output"]).all()


def test_returns_the_threads_it_is_told_to_use() -> None:
    """What a scheduler chose can be seen in the answer."""
    assert (_echo(return_threads=True).run({"input": ROWS}, threads=3)["output"] == 3).all()


def test_logs_start_and_finish_of_each_row(tmp_path: Path) -> None:
    """The event log tells which item began and which was finished, across processes."""
    log = tmp_path / "events"
    echo = _echo(event_log=str(log), fail_on=3)
    echo.run({"input": ROWS[:1]})
    with pytest.raises(ValueError, match="fail"):
        echo.run({"input": ROWS})
    assert log.read_text().splitlines() == ["start 1", "finish 1", "start 1", "start 3"]


def test_other_inputs_are_refused() -> None:
    """The echo checks names, shapes and dtypes like any engine."""
    with pytest.raises(InvalidArgumentError, match="dtype int64"):
        _echo().run({"input": np.array([[1]])})


_LETHAL = """
import sys
from pathlib import Path
import numpy as np
from paddlewheel.engines import LoadOptions, ModelFiles, load
echo = load(ModelFiles("none", Path()), "echo", LoadOptions(options={sys.argv[1]: 666}))
echo.run({"input": np.array([[1]], np.float32)})
print("alive", flush=True)
echo.run({"input": np.array([[666]], np.float32)})
print("not reached", flush=True)
"""


def test_ends_its_process_on_a_value() -> None:
    """`exit_on` kills the process at that item, without an exception that anything could catch."""
    done = subprocess.run([sys.executable, "-c", _LETHAL, "exit_on"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (EXIT_STATUS, "alive\n")


def test_loads_as_slowly_as_told() -> None:
    """`load_delay_s` holds back the load itself."""
    before = time.monotonic()
    _echo(load_delay_s=0.1)
    assert time.monotonic() - before >= 0.1


def test_ends_its_process_at_load() -> None:
    """`exit_at_load` kills the process before anything is loaded, as a damaged file may."""
    lethal = _LETHAL.replace("sys.argv[1]: 666", "'exit_at_load': True")
    done = subprocess.run([sys.executable, "-c", lethal], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (EXIT_STATUS, "")


def test_hangs_on_a_value() -> None:
    """`hang_on` never answers."""
    with subprocess.Popen([sys.executable, "-c", _LETHAL, "hang_on"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "alive\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.kill()
        assert process.stdout.read() == ""
