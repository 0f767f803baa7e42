"""The echo engine: returns its inputs, and misbehaves on request.

It is the instrument for trials of the server around it, and for documentation: no files, no library but numpy. Each
option of :class:`Options` is one way to be slow, wrong or dead. Options that name a value look for it in every element
of every input.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from paddlewheel.engines.options import parse_options
from paddlewheel.engines.predictor import Arrays, Format, LoadOptions, ModelFiles, check_inputs
from paddlewheel.errors import ModelLoadError
from paddlewheel.inference import TensorSpec

name: Final = "echo"
formats: Final[frozenset[Format]] = frozenset({"none"})

EXIT_STATUS: Final = 13
"""Exit status of a process that met `exit_on`."""


class Port(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One input; the output of the same position has the same datatype and shape."""

    name: str = "input"
    datatype: str = "FP32"
    shape: tuple[int, ...] = (-1, -1)


class Options(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How the echo behaves; by default it answers at once."""

    ports: tuple[Port, ...] = (Port(),)
    """What it takes."""
    outputs: tuple[str, ...] = ("output",)
    """Names of what it returns, one a port."""
    delay_s: float = 0.0
    """Wait before each answer."""
    delay_from_input: bool = False
    """Wait for as many seconds as the largest element says, on top of `delay_s`."""
    fail_on: float | None = None
    """Raise ValueError when an element has this value."""
    exit_on: float | None = None
    """End the process when an element has this value."""
    hang_on: float | None = None
    """Never answer when an element has this value."""
    return_threads: bool = False
    """Return the number of threads that it was told to use in place of each element."""
    replace_with: float | None = None
    """Return this (`nan` and `inf` included) in place of each element."""
    load_delay_s: float = 0.0
    """Wait before it is loaded."""
    exit_at_load: bool = False
    """End the process instead of loading."""
    event_log: str | None = None
    """File to which `start N` and `finish N` are appended, N being the first element of each row."""


def missing(device: str) -> str | None:
    """Return None: the echo needs nothing, and runs on no device but the CPU."""
    return None if device == "cpu" else f"echo has no {device}, it needs none (set device = 'cpu')"


def preload() -> None:
    """Do nothing: numpy is there already."""


def load(files: ModelFiles, options: LoadOptions) -> EchoPredictor:  # noqa: ARG001  # an engine's signature
    """Return an echo; no file is read."""
    settings = parse_options(name, Options, options.options)
    if len(settings.outputs) != len(settings.ports):
        raise ModelLoadError(f"Engine 'echo' has {len(settings.outputs)} outputs for {len(settings.ports)} ports.")
    if settings.exit_at_load:
        os._exit(EXIT_STATUS)
    threading.Event().wait(settings.load_delay_s)
    return EchoPredictor(settings)


class EchoPredictor:
    """Returns what it is given."""

    device: Final = "cpu"
    precision: Final = "fp32"

    def __init__(self, options: Options) -> None:
        self._options = options
        self.inputs = tuple(TensorSpec(port.name, port.datatype, port.shape) for port in options.ports)
        self.outputs = tuple(
            TensorSpec(label, port.datatype, port.shape)
            for label, port in zip(options.outputs, options.ports, strict=True)
        )

    def run(self, inputs: Arrays, threads: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return `inputs` under the names of the outputs, after whatever the options ask for."""
        check_inputs(self.inputs, inputs)
        self._log("start", inputs)
        self._misbehave(inputs)
        outputs = {
            output.name: self._returned(inputs[source.name], threads or 0)
            for source, output in zip(self.inputs, self.outputs, strict=True)
        }
        self._log("finish", inputs)
        return outputs

    def _misbehave(self, inputs: Arrays) -> None:
        options, never = self._options, threading.Event()
        if _holds(inputs, options.exit_on):
            os._exit(EXIT_STATUS)
        if _holds(inputs, options.hang_on):
            never.wait()
        delay_s = options.delay_s
        if options.delay_from_input:
            delay_s += max(float(array.max(initial=0)) for array in inputs.values())
        if delay_s > 0:
            never.wait(delay_s)
        if _holds(inputs, options.fail_on):
            raise ValueError(f"The echo was told to fail on {options.fail_on}.")

    def _returned(self, array: npt.NDArray[Any], threads: int) -> npt.NDArray[Any]:
        value = threads if self._options.return_threads else self._options.replace_with
        return array.copy() if value is None else np.full_like(array, value)

    def _log(self, event: str, inputs: Arrays) -> None:
        if self._options.event_log is None:
            return
        rows = next(iter(inputs.values()))
        lines = "".join(f"{event} {row.flat[0]:g}\n" for row in np.atleast_2d(rows) if row.size)
        log = os.open(self._options.event_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(log, lines.encode())
        finally:
            os.close(log)


def _holds(inputs: Arrays, value: float | None) -> bool:
    return value is not None and any(bool((array == value).any()) for array in inputs.values())
