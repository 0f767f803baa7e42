"""The code around predictors: bytes to pixels, OCR, plain tensors. Runs in worker processes.

:func:`check` is what the front process knows of a pipeline: whether a request could be run. :func:`build` is for
workers, and imports what the pipeline needs only then.
"""

from __future__ import annotations

from paddlewheel.catalog import InstalledPack, get_pack
from paddlewheel.engines import LoadOptions
from paddlewheel.errors import InvalidArgumentError
from paddlewheel.inference import InferenceRequest, Signature
from paddlewheel.pipelines import picture_header
from paddlewheel.pipelines.ocr.parameters import parse_parameters
from paddlewheel.pipelines.pipeline import Pipeline
from paddlewheel.pipelines.spec import ModelSpec
from paddlewheel.pipelines.tensor import check_outputs, check_tensors, load_tensor

__all__ = ["ModelSpec", "build", "check"]


def build(spec: ModelSpec) -> Pipeline:
    """Load the model that `spec` describes; raises :class:`~paddlewheel.errors.ModelLoadError`."""
    load = LoadOptions(
        device=spec.device,
        precision=spec.precision,
        threads=spec.threads,
        options=spec.engine_options,
        logs=spec.engine_logs,
    )
    if spec.pipeline == "tensor":
        return load_tensor(spec, load)
    from paddlewheel.pipelines.ocr.loading import load_ocr  # noqa: PLC0415  # only workers read pixels

    assert spec.folder is not None, "an OCR model comes from a pack"
    assert spec.pack is not None, "an OCR model comes from a pack"
    installed = InstalledPack(get_pack(spec.pack), spec.folder)
    return load_ocr(installed, spec.engine, load, defaults=spec.options, max_pixels=spec.max_pixels)


def check(spec: ModelSpec, signature: Signature, request: InferenceRequest) -> None:
    """Raise :class:`InvalidArgumentError` if `request` cannot be run, as far as its header and parameters tell."""
    check_outputs(signature, request)
    if spec.pipeline == "ocr":
        parse_parameters(request.parameters, spec.options)
        picture_header.inspect(picture_of(request), spec.max_pixels)
    else:
        check_tensors(spec, signature, request)


def picture_of(request: InferenceRequest) -> memoryview:
    """Return the encoded picture of a request to a picture model."""
    if [tensor.name for tensor in request.inputs] != ["image"] or len(elements := request.inputs[0].elements()) != 1:
        raise InvalidArgumentError(
            f"Model '{request.model}' takes one input, 'image', with one BYTES element: the picture as a file."
        )
    return elements[0]
