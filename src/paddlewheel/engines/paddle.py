"""Paddle Inference: reads ``.pdmodel`` and ``.json`` (PIR), on CPUs through oneDNN and on NVIDIA GPUs.

A predictor is made for each thread count. A network that oneDNN cannot run shows it at its first run; it then goes on
without, several times slower, and says so. The GPU and TensorRT settings follow the library's documentation and have
not been tried on a GPU.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from paddlewheel.engines.cpu import has_native_bf16
from paddlewheel.engines.options import parse_options
from paddlewheel.engines.paddle_files import read_program
from paddlewheel.engines.predictor import Arrays, Format, LoadOptions, ModelFiles, check_inputs, gpu_id
from paddlewheel.errors import ModelLoadError

if TYPE_CHECKING:
    from paddle import inference

name: Final = "paddle"
formats: Final[frozenset[Format]] = frozenset({"paddle", "pir"})

_log = logging.getLogger("paddlewheel.engines")


class Options(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Settings that only this engine knows."""

    onednn: bool = True
    """Run on the CPU through oneDNN; without it a network takes several times as long."""
    onednn_cache: int = 10
    """Shapes for which oneDNN keeps what it has prepared; more is faster where they repeat, and takes memory."""
    gpu_memory_mb: int = 500
    """Size of the memory pool that is taken on the GPU at start."""
    tensorrt: bool = False
    """Hand what it can run to TensorRT."""
    tensorrt_precision: Literal["fp32", "fp16", "int8"] = "fp16"
    """What TensorRT computes in."""
    tensorrt_workspace_mb: int = 1024
    """Memory that TensorRT may use for its work."""
    tensorrt_cache_dir: str | None = None
    """Folder for the engines that TensorRT builds, which takes minutes; None builds them at each start."""
    tensorrt_shapes: str | None = None
    """File of the shape ranges to build for, as Paddle's `collect_shape_range_info` writes it."""


def missing(device: str) -> str | None:
    """Return None if Paddle is installed and has `device`, else what is missing and the remedy."""
    if importlib.util.find_spec("paddle") is None:
        return "paddle is not installed (pip install 'paddlewheel[paddle]')"
    if device == "cpu":
        return None
    paddle = _imported()
    if not paddle.is_compiled_with_cuda():
        return f"the installed paddle has no CUDA for {device} (install paddlepaddle-gpu, or set device = 'cpu')"
    count = paddle.device.cuda.device_count()
    if gpu_id(device) >= count:
        return f"there is no {device}, this machine shows {count} GPUs (set device to one of these, or to 'cpu')"
    return None


def preload() -> None:
    """Import the library."""
    _imported()


def load(files: ModelFiles, options: LoadOptions) -> PaddlePredictor:
    """Create a predictor for each thread count; raises :class:`ModelLoadError`."""
    settings = parse_options(name, Options, options.options)
    precision = _precision(options, settings)
    _imported()
    try:
        return PaddlePredictor(files, options, settings, precision)
    except (RuntimeError, ValueError, OSError, NotImplementedError) as error:
        raise ModelLoadError(
            f"Paddle cannot load '{files.model}': {_essence(error)} Check that the model and its parameters are whole "
            "and belong together (pull or copy them again)."
        ) from error


class PaddlePredictor:
    """One network, with a predictor of the library's for each thread count."""

    def __init__(self, files: ModelFiles, options: LoadOptions, settings: Options, precision: str) -> None:
        program = read_program(files)
        self.inputs, self.outputs = program.inputs, program.outputs
        self.device = options.device
        self.precision = precision
        self._usual = options.threads[0]
        self._model = files.model
        self._create: Callable[[int, bool], inference.Predictor] = lambda threads, onednn: _created(
            files, options, settings, threads, precision=precision, onednn=onednn
        )
        self._onednn = settings.onednn and options.device == "cpu"
        self._proven = not self._onednn
        # Between runs, Paddle keeps a `.pdmodel`'s intermediate tensors in chunks that no later shape reuses: over 20
        # widths of a text line it grew to 3.3 GB, and to 0.6 GB when they are let go, at no cost in time.
        self._hoards = files.format == "paddle" and options.device == "cpu"
        self._predictors = {count: self._create(count, self._onednn) for count in options.threads}

    def run(self, inputs: Arrays, threads: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs for `inputs`."""
        check_inputs(self.inputs, inputs)
        count = threads or self._usual
        if self._proven:
            return self._run(self._predictors[count], inputs)
        try:
            outputs = self._run(self._predictors[count], inputs)
        except Exception as error:  # oneDNN's refusals come in many classes
            outputs = self._run_without_onednn(inputs, count, error)
        self._proven = True
        return outputs

    def _run(self, predictor: inference.Predictor, inputs: Arrays) -> dict[str, npt.NDArray[Any]]:
        for label, array in inputs.items():
            predictor.get_input_handle(label).copy_from_cpu(np.ascontiguousarray(array))
        predictor.run()
        outputs = {spec.name: predictor.get_output_handle(spec.name).copy_to_cpu() for spec in self.outputs}
        if self._hoards:
            predictor.clear_intermediate_tensor()
            predictor.try_shrink_memory()
        return outputs

    def _run_without_onednn(self, inputs: Arrays, count: int, error: Exception) -> dict[str, npt.NDArray[Any]]:
        """Go on without oneDNN if that is what failed; an input that fails either way raises and changes nothing."""
        outputs = self._run(self._create(count, False), inputs)
        self._predictors = {each: self._create(each, False) for each in self._predictors}
        _log.warning(
            "Paddle cannot run '%s' with oneDNN (%s); it runs without, several times slower. Set engine_options."
            "onednn = false to load it so at once, or use another engine.",
            self._model,
            _essence(error),
        )
        return outputs


def _created(
    files: ModelFiles, options: LoadOptions, settings: Options, threads: int, *, precision: str, onednn: bool
) -> inference.Predictor:
    from paddle import inference  # noqa: PLC0415  # the library is optional and slow to import

    config = inference.Config(str(files.model), str(files.parameters))
    if not options.logs:
        config.disable_glog_info()
    if files.format == "pir":
        config.enable_new_ir(True)
        config.enable_new_executor(True)
    config.enable_memory_optim()
    config.switch_ir_optim(True)
    config.set_cpu_math_library_num_threads(threads)
    if options.device != "cpu":
        _use_gpu(config, options.device, settings, precision)
    else:
        config.disable_gpu()
        if onednn:
            config.enable_mkldnn()
            config.set_mkldnn_cache_capacity(settings.onednn_cache)
            if precision == "bf16":
                config.enable_mkldnn_bfloat16()
        else:
            config.disable_mkldnn()
    return inference.create_predictor(config)


def _use_gpu(config: inference.Config, device: str, settings: Options, precision: str) -> None:
    from paddle import inference  # noqa: PLC0415  # likewise

    kinds = {
        "fp32": inference.PrecisionType.Float32,
        "fp16": inference.PrecisionType.Half,
        "bf16": inference.PrecisionType.Bfloat16,
        "int8": inference.PrecisionType.Int8,
    }
    config.enable_use_gpu(settings.gpu_memory_mb, gpu_id(device), kinds[precision])
    if not settings.tensorrt:
        return
    if not any(inference.get_trt_compile_version()):
        raise ModelLoadError("The installed paddle has no TensorRT; install a build that has, or set tensorrt = false.")
    if settings.tensorrt_cache_dir is not None:
        config.set_optim_cache_dir(settings.tensorrt_cache_dir)
    config.enable_tensorrt_engine(
        workspace_size=settings.tensorrt_workspace_mb << 20,
        max_batch_size=1,
        min_subgraph_size=3,
        precision_mode=kinds[settings.tensorrt_precision],
        use_static=settings.tensorrt_cache_dir is not None,
        use_calib_mode=False,
    )
    if settings.tensorrt_shapes is not None:
        config.enable_tuned_tensorrt_dynamic_shape(settings.tensorrt_shapes, True)


def _precision(options: LoadOptions, settings: Options) -> str:
    """Return the precision to ask for; Paddle itself would fall back to fp32 without a word.

    `auto` is fp32: Paddle's bf16 rewrites single operators, and nobody has shown that it keeps a network's answers.
    """
    asked = "fp32" if options.precision == "auto" else options.precision
    on_cpu = options.device == "cpu"
    if on_cpu and settings.tensorrt:
        raise ModelLoadError("TensorRT needs a GPU; set tensorrt = false or device = 'gpu:0'.")
    allowed = ("fp32", "bf16") if on_cpu else ("fp32", "fp16", "bf16")
    if asked not in allowed:
        raise ModelLoadError(
            f"Paddle has no precision '{asked}' on {options.device}; expected one of auto, {', '.join(allowed)}."
        )
    if on_cpu and asked == "bf16" and not (has_native_bf16() and settings.onednn):
        raise ModelLoadError("Paddle needs oneDNN and a CPU that computes in bf16; set precision = 'auto' or 'fp32'.")
    return asked


def _imported() -> Any:
    """Return the library; its import says things to developers of operators, who are not here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No ccache found", category=UserWarning)
        import paddle  # noqa: PLC0415  # the library is optional and slow to import
    return paddle


def _essence(error: Exception) -> str:
    """Return the line that says what was wrong: the others are a C++ trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("(") or "Error:" in line]
    return (telling or lines or [type(error).__name__])[0].rstrip(".") + "."
