"""The tensor pipeline: named arrays in, named arrays out; requests of a batch are put together along axis 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paddlewheel import engines
from paddlewheel.engines import LoadOptions, ModelFiles, Predictor
from paddlewheel.errors import PaddlewheelError
from paddlewheel.inference import Answer, Tensor
from paddlewheel.pipelines.pipeline import Item, Outcome


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
            outputs = self._predictor.run(
                {name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}, threads
            )
            start = 0
            for index, inputs in zip(wanted, arrays, strict=True):
                rows = _rows(inputs)
                outcomes[index] = Answer(
                    tuple(Tensor.from_numpy(name, array[start : start + rows]) for name, array in outputs.items())
                )
                start += rows
        return [outcome for outcome in outcomes if outcome is not None]


def _refusal(item: Item) -> PaddlewheelError | None:
    try:
        item.check_wanted()
        for tensor in item.inputs:
            tensor.numpy()
    except PaddlewheelError as error:
        return error
    return None


def _rows(inputs: Mapping[str, npt.NDArray[Any]]) -> int:
    return len(next(iter(inputs.values())))
