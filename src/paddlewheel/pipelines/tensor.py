"""The tensor pipeline: named arrays in, named arrays out; requests of a batch are put together along axis 0.

:func:`check_tensors` is for the front process: what it lets through can be put together and taken apart again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog

from paddlewheel import engines
from paddlewheel.engines import LoadOptions, ModelFiles, Predictor
from paddlewheel.errors import InvalidArgumentError, PaddlewheelError
from paddlewheel.inference import BYTES, Answer, InferenceRequest, Signature, Tensor, TensorSpec
from paddlewheel.pipelines.pipeline import Item, Outcome
from paddlewheel.pipelines.spec import Filling, ModelSpec, Padding

_EACH_SIZE_UP_TO = 8

_log = structlog.stdlib.get_logger(__name__)


def check_outputs(signature: Signature, request: InferenceRequest) -> None:
    """Raise :class:`InvalidArgumentError` unless the model has the outputs that the request asks for."""
    known = {spec.name for spec in signature.outputs}
    for name in request.outputs:
        if name not in known:
            raise InvalidArgumentError(
                f"Model '{request.model}' has no output '{name:.100}'; expected some of {_listed(known)}."
            )
    for name, count in request.classes.items():
        if count < 1:
            raise InvalidArgumentError(f"Output '{name:.100}' has classification {count}; expected 1 or more.")


def check_tensors(spec: ModelSpec, signature: Signature, request: InferenceRequest) -> None:
    """Raise :class:`InvalidArgumentError` unless the inputs are those of `signature`, whole, and with the same rows."""
    given = [tensor.name for tensor in request.inputs]
    expected = {spec.name: spec for spec in signature.inputs}
    if sorted(given) != sorted(expected):
        raise InvalidArgumentError(f"Model '{request.model}' takes inputs {_listed(expected)}; got {_listed(given)}.")
    for tensor in request.inputs:
        _check_tensor(tensor, expected[tensor.name])
    rows = {tensor.shape[:1] for tensor in request.inputs}
    if spec.has_rows(signature) and len(rows) != 1:
        shapes = ", ".join(f"'{tensor.name}' {list(tensor.shape)}" for tensor in request.inputs)
        raise InvalidArgumentError(f"The inputs have these shapes: {shapes}; expected one first dimension, the rows.")


def _check_tensor(tensor: Tensor, spec: TensorSpec) -> None:
    if not spec.fits(tensor.datatype, tensor.shape):
        raise InvalidArgumentError(
            f"Input '{tensor.name}' has datatype {tensor.datatype:.20} and shape {list(tensor.shape)}; expected "
            f"{spec.datatype} and {list(spec.shape)} (-1 is any size)."
        )
    if 0 in tensor.shape:
        raise InvalidArgumentError(
            f"Input '{tensor.name}' has shape {list(tensor.shape)}: it is empty; expected at least 1 in each dimension "
            "(the first one counts the rows)."
        )
    if tensor.datatype == BYTES:
        tensor.elements()
    else:
        tensor.check_size(spec.dtype)


def load_tensor(spec: ModelSpec, options: LoadOptions) -> TensorPipeline:
    """Return the pipeline around the network of `spec`; raises :class:`ModelLoadError`."""
    files = spec.files or ModelFiles("none", Path())
    return TensorPipeline(engines.load(files, spec.engine, options), spec)


class TensorPipeline:
    """A predictor and nothing around it."""

    def __init__(self, predictor: Predictor, spec: ModelSpec) -> None:
        self._predictor = predictor
        self._spec = spec
        self.signature = Signature(predictor.inputs, predictor.outputs)
        """As the network itself says."""

    def describe(self) -> dict[str, str]:
        """Return the precision and device of the network."""
        return {"network": f"{self._predictor.precision} on {self._predictor.device}"}

    def warm_up(self, thread_counts: Sequence[int]) -> None:
        """Run the network with its warm-up samples or, if there are none, for every size of batch that may come.

        The latter takes a network whose other dimensions are fixed; for others the samples must say what is usual.
        """
        samples = self._samples()
        if not samples:
            _log.info("model is not warmed up: its shapes are open and it has no warm_up", model=self._spec.name)
        for sample in samples:
            for threads in thread_counts:
                self._predictor.run(self._padded(sample), threads)

    def sample(self) -> tuple[Tensor, ...]:
        """Return the first of the samples."""
        first = next(iter(self._samples()), {})
        return tuple(Tensor.from_numpy(name, array) for name, array in first.items())

    def _samples(self) -> list[dict[str, npt.NDArray[Any]]]:
        """Return the settings' samples, or what the signature fixes; none for an engine without a network."""
        if self._spec.engine == "echo":
            return []
        dtypes = {spec.name: spec.dtype for spec in self.signature.inputs}
        random = np.random.default_rng(0)
        return [
            {name: _filled(filling, dtypes.get(name), random) for name, filling in sample.items()}
            for sample in self._spec.warm_up or self._usual_samples()
        ]

    def _usual_samples(self) -> Iterator[dict[str, Filling]]:
        shapes = {spec.name: spec.shape for spec in self.signature.inputs}
        if not self._spec.has_rows(self.signature):
            if all(-1 not in shape for shape in shapes.values()):
                yield {name: Filling(shape, 0) for name, shape in shapes.items()}
        elif all(-1 not in shape[1:] for shape in shapes.values()):
            for rows in _batch_sizes(self._spec.max_batch_size):
                yield {name: Filling((rows, *shape[1:]), 0) for name, shape in shapes.items()}

    def run(self, batch: Sequence[Item], threads: int | None = None) -> list[Outcome]:
        """Run the wanted items as one; their rows are cut out of the outputs again."""
        outcomes: list[Outcome | None] = [_refusal(item) for item in batch]
        wanted = [index for index, outcome in enumerate(outcomes) if outcome is None]
        if wanted:
            arrays = [self._padded({tensor.name: tensor.numpy() for tensor in batch[index].inputs}) for index in wanted]
            inputs = arrays[0] if len(arrays) == 1 else _stacked(arrays)
            rows = [next(iter(each.values())).shape[:1] for each in arrays]
            for index, answer in zip(wanted, _cut(self._predictor.run(inputs, threads), rows), strict=True):
                outcomes[index] = answer
        return [outcome for outcome in outcomes if outcome is not None]

    def _padded(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        padding = self._spec.padding
        return {name: _pad(array, padding[name]) if name in padding else array for name, array in arrays.items()}


def _batch_sizes(most: int) -> list[int]:
    """Return the sizes of batch to warm up: each one, or of many the powers of two and the largest."""
    if most <= _EACH_SIZE_UP_TO:
        return list(range(1, most + 1))
    return sorted({1 << power for power in range(most.bit_length())} | {most})


def _filled(filling: Filling, dtype: np.dtype[Any] | None, random: np.random.Generator) -> npt.NDArray[Any]:
    values = random.random(filling.shape) if filling.value is None else np.full(filling.shape, filling.value)
    return values.astype(dtype or np.float32)


def _pad(array: npt.NDArray[Any], padding: Padding) -> npt.NDArray[Any]:
    missing = [wanted - side for wanted, side in zip(padding.padded(array.shape), array.shape, strict=True)]
    if not any(missing):
        return array
    return np.pad(array, [(0, count) for count in missing], constant_values=array.dtype.type(padding.value))


def _stacked(arrays: Sequence[Mapping[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    return {name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}


def _cut(outputs: Mapping[str, npt.NDArray[Any]], rows: Sequence[tuple[int, ...]]) -> list[Answer]:
    """Return an answer for each item; raises ValueError where the outputs do not have the rows of the batch."""
    if len(rows) == 1:
        return [_answer(outputs)]
    counts = [count for (count,) in rows]
    if any(array.shape[:1] != (sum(counts),) for array in outputs.values()):
        raise ValueError(f"an output does not have the {sum(counts)} rows of the batch: its items must run alone")
    ends = np.cumsum(counts)
    return [
        _answer({name: array[end - count : end] for name, array in outputs.items()})
        for count, end in zip(counts, ends, strict=True)
    ]


def _answer(outputs: Mapping[str, npt.NDArray[Any]]) -> Answer:
    return Answer(tuple(Tensor.from_numpy(name, array) for name, array in outputs.items()))


def _refusal(item: Item) -> PaddlewheelError | None:
    try:
        item.check_wanted()
    except PaddlewheelError as error:
        return error
    return None


def _listed(names: Any) -> str:
    return ", ".join(f"'{name:.100}'" for name in sorted(names)) or "none"
