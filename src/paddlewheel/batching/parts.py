"""Requests with more rows than a batch may have: cut up before the queue, put together again afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from paddlewheel.inference import Answer, InferenceRequest, Tensor


def split(request: InferenceRequest, rows: int, most: int) -> list[InferenceRequest]:
    """Return `request`, of `rows` rows, as requests of at most `most` rows each, in order."""
    if rows <= most:
        return [request]
    return [
        msgspec.structs.replace(
            request, inputs=tuple(_rows(tensor, start, min(start + most, rows)) for tensor in request.inputs)
        )
        for start in range(0, rows, most)
    ]


def joined(answers: Sequence[Answer]) -> Answer:
    """Return the answers to the parts of a request as one: outputs along axis 0, times added up."""
    if len(answers) == 1:
        return answers[0]
    outputs = [
        Tensor.from_numpy(tensor.name, np.concatenate([answer.output(tensor.name).numpy() for answer in answers]))
        for tensor in answers[0].outputs
    ]
    stages = {stage for answer in answers for stage in answer.timing_ms}
    timing_ms = {stage: sum(answer.timing_ms.get(stage, 0.0) for answer in answers) for stage in stages}
    return Answer(tuple(outputs), answers[0].parameters, timing_ms)


def _rows(tensor: Tensor, start: int, end: int) -> Tensor:
    return Tensor.from_numpy(tensor.name, tensor.numpy()[start:end])
