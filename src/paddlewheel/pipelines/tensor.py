"""The tensor pipeline: named arrays in, named arrays out; requests of a batch are put together along axis 0.

:func:`check_tensors` is for the front process: what it lets through can be put together and taken apart again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paddlewheel import engines
from paddlewheel.engines import LoadOptions, ModelFiles, Predictor
from paddlewheel.errors import InvalidArgumentError, PaddlewheelError
from paddlewheel.inference import Answer, InferenceRequest, Tensor
from paddlewheel.pipelines.pipeline import Item, Outcome


def check_tensors(request: InferenceRequest) -> None:
    """Raise :class:`InvalidArgumentError` unless the inputs have names of their own and the same rows, at least one."""
    names = [tensor.name for tensor in request.inputs]
    if len(set(names)) != len(names):
        raise InvalidArgumentError(f"The inputs are called {names}; expected a name of its own for each.")
    for tensor in request.inputs:
        tensor.numpy()
    rows = {tensor.shape[:1] for tensor in request.inputs}
    if len(rows) != 1 or rows <= {(), (0,)}:
        shapes = ", ".join(f"'{tensor.name}' {list(tensor.shape)}" for tensor in request.inputs)
        raise InvalidArgumentError(
            f"The inputs have these shapes: {shapes or 'none'}; expected one first dimension, the rows, of at least 1."
        )


def load_tensor(engine: str, options: LoadOptions) -> TensorPipeline:
    """Return the pipeline around the echo engine, the only one that needs no files."""
    return TensorPipeline(engines.load(ModelFiles("none", Path()), engine, options))


class TensorPipeline:
    """A predictor and nothing around it."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def describe(self) -> dict[str, str]:
        """Return the precision and device of the network."""
        return {"network": f"{self._predictor.precision} on {self._predictor.device}"}

    def warm_up(self, threads: int) -> None:
        """Do nothing: the shapes are the caller's."""

    def run(self, batch: Sequence[Item], threads: int | None = None) -> list[Outcome]:
        """Run the wanted items as one; their rows are cut out of the outputs again."""
        outcomes: list[Outcome | None] = [_refusal(item) for item in batch]
        wanted = [index for index, outcome in enumerate(outcomes) if outcome is None]
        if wanted:
            arrays = [{tensor.name: tensor.numpy() for tensor in batch[index].inputs} for index in wanted]
            inputs = {name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}
            rows = [len(next(iter(each.values()))) for each in arrays]
            for index, answer in zip(wanted, _cut(self._predictor.run(inputs, threads), rows), strict=True):
                outcomes[index] = answer
        return [outcome for outcome in outcomes if outcome is not None]


def _cut(outputs: Mapping[str, npt.NDArray[Any]], rows: Sequence[int]) -> list[Answer]:
    """Return an answer for each item; raises ValueError where the outputs do not have the rows of the batch."""
    if len(rows) == 1:
        return [_answer(outputs)]
    if any(array.shape[:1] != (sum(rows),) for array in outputs.values()):
        raise ValueError(f"an output does not have the {sum(rows)} rows of the batch: its items must run alone")
    ends = np.cumsum(rows)
    return [
        _answer({name: array[end - count : end] for name, array in outputs.items()})
        for count, end in zip(rows, ends, strict=True)
    ]


def _answer(outputs: Mapping[str, npt.NDArray[Any]]) -> Answer:
    return Answer(tuple(Tensor.from_numpy(name, array) for name, array in outputs.items()))


def _refusal(item: Item) -> PaddlewheelError | None:
    try:
        item.check_wanted()
        for tensor in item.inputs:
            tensor.numpy()
    except PaddlewheelError as error:
        return error
    return None
