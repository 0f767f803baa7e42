"""OpenVINO: the fastest engine on CPUs; reads ``.onnx`` and ``.pdmodel``.

The network is compiled once for each thread count, and a run picks one of them. Threads are not pinned to cores: two
worker processes would be pinned to the same one. With a `cache_dir`, compiled networks are kept on disk, and a worker
that replaces a dead one loads them several times faster.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy.typing as npt

from paddlewheel.engines.compiled_cache import cache_entry, entry_name
from paddlewheel.engines.options import parse_options
from paddlewheel.engines.predictor import Arrays, Format, LoadOptions, ModelFiles, check_inputs
from paddlewheel.errors import ModelLoadError
from paddlewheel.inference import TensorSpec

if TYPE_CHECKING:
    import openvino

name: Final = "openvino"
formats: Final[frozenset[Format]] = frozenset({"onnx", "paddle"})

_PRECISIONS: Final = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}
_DATATYPES: Final = {"boolean": "BOOL", "f16": "FP16", "f32": "FP32", "f64": "FP64"} | {
    f"{short}{bits}": f"{long}{bits}" for short, long in (("i", "INT"), ("u", "UINT")) for bits in (8, 16, 32, 64)
}


class Options(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Settings that only this engine knows."""

    cache_dir: str | None = None
    """Folder for compiled networks, private to this user: what lies in it is trusted."""
    shape_cache: int = 1500
    """Layers, counted by shape and kind, that are kept prepared; eight page sizes repeat at full speed within 1500."""


def missing(device: str) -> str | None:
    """Return None if OpenVINO is installed and has `device`, else what is missing and the remedy."""
    if device != "cpu":
        return f"openvino has no {device} here, it is used on the CPU only (set device = 'cpu')"
    if importlib.util.find_spec("openvino") is None:
        return "openvino is not installed (pip install openvino)"
    return None


def preload() -> None:
    """Import the library, but not its telemetry.

    OpenVINO reports each import to its maker over the network, from a thread. A server must do neither: the package
    that does it is hidden for the time of the import, and OpenVINO then uses a stub of its own.
    """
    if "openvino" in sys.modules:
        return
    hidden = "openvino_telemetry"
    kept = sys.modules.get(hidden)
    sys.modules[hidden] = None  # type: ignore[assignment]  # what makes an import fail
    try:
        import openvino  # noqa: F401, PLC0415  # the library is optional and slow to import
    finally:
        del sys.modules[hidden]
        if kept is not None:
            sys.modules[hidden] = kept


def load(files: ModelFiles, options: LoadOptions) -> OpenVINOPredictor:
    """Compile the network for each thread count; raises :class:`ModelLoadError`."""
    preload()
    import openvino  # noqa: PLC0415  # the library is optional and slow to import

    settings = parse_options(name, Options, options.options)
    core = openvino.Core()
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    precision = _precision(options.precision, capabilities)
    hints: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
        "INFERENCE_PRECISION_HINT": _PRECISIONS[precision],
        "CPU_RUNTIME_CACHE_CAPACITY": settings.shape_cache,
    }

    def compiled(threads: int) -> openvino.CompiledModel:
        return core.compile_model(files.model, "CPU", hints | {"INFERENCE_NUM_THREADS": threads})

    try:
        with ExitStack() as stack:
            if settings.cache_dir is not None:
                entry = entry_name(files.model, openvino.get_version(), capabilities, hints, options.threads)
                hints["CACHE_DIR"] = str(stack.enter_context(cache_entry(Path(settings.cache_dir), entry)))
            pool = stack.enter_context(ThreadPoolExecutor(len(options.threads)))
            networks = dict(zip(options.threads, pool.map(compiled, options.threads), strict=True))
    except RuntimeError as error:
        raise ModelLoadError(
            f"OpenVINO cannot load '{files.model}': {_essence(error)} Check that the file is whole (pull or copy it "
            "again), or choose another engine."
        ) from error
    predictor = OpenVINOPredictor(networks)
    if predictor.precision != precision:
        raise ModelLoadError(
            f"OpenVINO computes '{files.model}' in {predictor.precision} instead of {precision}; set precision = "
            f"'{predictor.precision}' or 'auto'."
        )
    return predictor


class OpenVINOPredictor:
    """One network, compiled for each thread count."""

    def __init__(self, networks: Mapping[int, openvino.CompiledModel]) -> None:
        usual = next(iter(networks.values()))
        self.inputs = tuple(_spec(port) for port in usual.inputs)
        self.outputs = tuple(_spec(port) for port in usual.outputs)
        self.device = ",".join(usual.get_property("EXECUTION_DEVICES")).lower()
        self.precision = _reverse(usual.get_property("INFERENCE_PRECISION_HINT").get_type_name())
        self._usual = next(iter(networks))
        self._requests = {threads: network.create_infer_request() for threads, network in networks.items()}

    def run(self, inputs: Arrays, threads: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs for `inputs`."""
        check_inputs(self.inputs, inputs)
        results = self._requests[threads or self._usual].infer(dict(inputs), share_inputs=True)
        return {spec.name: results[index] for index, spec in enumerate(self.outputs)}


def _precision(asked: str, capabilities: Sequence[str]) -> str:
    """Return the precision to compute in; OpenVINO itself would fall back to fp32 without a word."""
    if asked == "auto":
        return "bf16" if "BF16" in capabilities else "fp32"
    if asked not in _PRECISIONS:
        raise ModelLoadError(
            f"OpenVINO has no precision '{asked}'; expected one of auto, {', '.join(_PRECISIONS)} (a quantised model "
            "keeps its int8 layers whatever this says)."
        )
    if asked != "fp32" and asked.upper() not in capabilities:
        raise ModelLoadError(f"This CPU does not compute in {asked}; set precision = 'auto' or 'fp32'.")
    return asked


def _spec(port: openvino.ConstOutput) -> TensorSpec:
    known = port.get_names()
    friendly = port.node.get_friendly_name().rpartition("/")[0] or port.node.get_friendly_name()
    label = friendly if friendly in known or not known else min(known)
    kind = port.element_type.get_type_name()
    shape = tuple(-1 if size.is_dynamic else size.get_length() for size in port.partial_shape)
    return TensorSpec(label, _DATATYPES.get(kind, kind.upper()), shape)


def _reverse(hint: str) -> str:
    return next((ours for ours, theirs in _PRECISIONS.items() if theirs == hint), hint)


def _essence(error: RuntimeError) -> str:
    """Return the last line that says something: the others name source files of the library."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(("Exception from", "Check '"))]
    return (telling or lines)[-1].rstrip(".") + "."
