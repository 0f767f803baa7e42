"""Which requests may share a batch: those whose bucket, a property of the request alone, is equal; and how many fit."""

from __future__ import annotations

from collections.abc import Hashable

from paddlewheel.inference import InferenceRequest


def bucket_of(pipeline: str, request: InferenceRequest) -> Hashable:
    """Return the bucket of `request`.

    Tensors share a batch if they can be put together along axis 0: same names, datatypes and other dimensions.
    Pictures always can: the OCR pipeline puts their lines together by width itself.
    """
    if pipeline == "tensor":
        return tuple((tensor.name, tensor.datatype, tensor.shape[1:]) for tensor in request.inputs)
    return None


def rows_of(pipeline: str, request: InferenceRequest) -> int:
    """Return how many rows of a batch `request` takes: the first dimension of its tensors; one for a picture."""
    return request.inputs[0].shape[0] if pipeline == "tensor" else 1
