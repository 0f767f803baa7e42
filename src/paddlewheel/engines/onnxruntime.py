"""ONNX Runtime: reads ``.onnx``, on CPUs and, through its CUDA provider, on GPUs.

It computes in the datatypes that the file has. Its threads do not spin: the cores are shared with other workers.
The CUDA path follows the library's documentation and has not been tried on a GPU.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy.typing as npt

from paddlewheel.engines.options import parse_options
from paddlewheel.engines.predictor import Arrays, Format, LoadOptions, ModelFiles, check_inputs, gpu_id
from paddlewheel.errors import ModelLoadError
from paddlewheel.inference import TensorSpec

if TYPE_CHECKING:
    import onnxruntime

name: Final = "onnxruntime"
formats: Final[frozenset[Format]] = frozenset({"onnx"})

_CPU: Final = "CPUExecutionProvider"
_CUDA: Final = "CUDAExecutionProvider"
_DATATYPES: Final = {"bool": "BOOL", "float16": "FP16", "float": "FP32", "double": "FP64", "string": "BYTES"}
_QUIET, _TALKATIVE = 4, 1


class Options(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Settings that only this engine knows."""

    arena: bool = False
    """Keep freed memory for later runs: a few percent faster, for a third more memory."""
    gpu_memory_mb: int | None = None
    """Most GPU memory; None is no limit."""


def missing(device: str) -> str | None:
    """Return None if ONNX Runtime is installed and has `device`, else what is missing and the remedy."""
    if importlib.util.find_spec("onnxruntime") is None:
        return "onnxruntime is not installed (pip install 'paddlewheel[onnxruntime]')"
    if device == "cpu":
        return None
    import onnxruntime  # noqa: PLC0415  # only a GPU's presence needs the library

    if _CUDA not in onnxruntime.get_available_providers():
        return (
            f"the installed onnxruntime has no CUDA for {device} (pip install onnxruntime-gpu in its place, or set "
            "device = 'cpu')"
        )
    return None


def preload() -> None:
    """Import the library."""
    import onnxruntime  # noqa: F401, PLC0415  # imported for processes forked later


def load(files: ModelFiles, options: LoadOptions) -> OnnxRuntimePredictor:
    """Open a session for each thread count; raises :class:`ModelLoadError`."""
    if options.precision not in {"auto", "fp32"}:
        raise ModelLoadError(
            f"ONNX Runtime computes in the datatypes of the file, not in {options.precision}; set precision = 'auto' "
            "or engine = 'openvino'."
        )
    settings = parse_options(name, Options, options.options)
    predictor = OnnxRuntimePredictor({count: _session(files, options, settings, count) for count in options.threads})
    if predictor.device != options.device:
        raise ModelLoadError(
            f"ONNX Runtime put '{files.model}' on {predictor.device} instead of {options.device}; check the GPU's "
            "driver and its CUDA libraries, or set device = 'cpu'."
        )
    return predictor


class OnnxRuntimePredictor:
    """One network, with a session for each thread count."""

    def __init__(self, sessions: Mapping[int, onnxruntime.InferenceSession]) -> None:
        self._usual = next(iter(sessions))
        self._sessions = sessions
        usual = sessions[self._usual]
        self.inputs = tuple(_spec(port) for port in usual.get_inputs())
        self.outputs = tuple(_spec(port) for port in usual.get_outputs())
        self.device = _device(usual)
        self.precision = "fp16" if any(spec.datatype == "FP16" for spec in self.inputs + self.outputs) else "fp32"

    def run(self, inputs: Arrays, threads: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs for `inputs`."""
        check_inputs(self.inputs, inputs)
        names = [spec.name for spec in self.outputs]
        return dict(zip(names, self._sessions[threads or self._usual].run(names, inputs), strict=True))


def _session(files: ModelFiles, options: LoadOptions, settings: Options, threads: int) -> onnxruntime.InferenceSession:
    import onnxruntime  # noqa: PLC0415  # the library is optional and slow to import

    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = threads
    session.inter_op_num_threads = 1
    session.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session.enable_cpu_mem_arena = settings.arena
    session.enable_mem_pattern = False  # a plan is kept for each shape, and shapes change
    session.log_severity_level = _TALKATIVE if options.logs else _QUIET
    try:
        opened = onnxruntime.InferenceSession(files.model, session, providers=_providers(options.device, settings))
    except Exception as error:  # the library's errors have no class of their own in common
        raise ModelLoadError(
            f"ONNX Runtime cannot load '{files.model}': {error} Check that the file is whole (pull or copy it again)."
        ) from error
    opened.disable_fallback()
    return opened


def _providers(device: str, settings: Options) -> list[str | tuple[str, dict[str, Any]]]:
    if device == "cpu":
        return [_CPU]
    cuda: dict[str, Any] = {"device_id": gpu_id(device)}
    if settings.gpu_memory_mb is not None:
        cuda["gpu_mem_limit"] = settings.gpu_memory_mb << 20
    return [(_CUDA, cuda), _CPU]


def _device(session: onnxruntime.InferenceSession) -> str:
    """Return where the session's nodes run, asked of the session: the list of available providers proves nothing."""
    if _CUDA not in session.get_providers():
        return "cpu"
    return f"gpu:{session.get_provider_options()[_CUDA]['device_id']}"


def _spec(port: onnxruntime.NodeArg) -> TensorSpec:
    kind = port.type.removeprefix("tensor(").removesuffix(")")
    shape = tuple(size if isinstance(size, int) else -1 for size in port.shape)
    return TensorSpec(port.name, _DATATYPES.get(kind, kind.upper()), shape)
