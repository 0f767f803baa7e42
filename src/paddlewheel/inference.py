"""The values that travel from an edge to a worker and back: tensors, requests, responses.

A tensor is kept in its wire form (datatype, shape, little-endian bytes), so that a request that arrives in binary is
handed on to shared memory without being parsed, and the front process needs no engine. Pictures are tensors too: a
``BYTES`` element that holds the encoded file.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import ml_dtypes
import msgspec
import numpy as np
import numpy.typing as npt

from paddlewheel.errors import InvalidArgumentError

Buffer = bytes | bytearray | memoryview

BYTES = "BYTES"
DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
_DATATYPES = {dtype: name for name, dtype in DTYPES.items()}
DATATYPES = (*DTYPES, BYTES)

HIGHEST_PRIORITY = 1


class Tensor(msgspec.Struct, frozen=True):
    """A named array in the wire form of the Open Inference Protocol.

    `data` is row-major and little-endian; for ``BYTES`` each element is a 4-byte length followed by that many bytes.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Buffer

    @classmethod
    def from_numpy(cls, name: str, array: npt.NDArray[Any]) -> Self:
        """Return `array` as a tensor; its dtype must have a datatype name of the protocol, or be object: ``BYTES``.

        The elements of an object array are bytes or text.
        """
        if array.dtype == object:
            elements = [each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each for each in array.flat]
            return cls.from_elements(name, elements, array.shape)
        dtype = array.dtype if array.dtype == DTYPES["BF16"] else array.dtype.newbyteorder("<")
        if dtype not in _DATATYPES:
            raise InvalidArgumentError(f"Tensor '{name}' has dtype {array.dtype}; expected one of {', '.join(DTYPES)}.")
        data = np.ascontiguousarray(array, dtype=dtype)
        return cls(name, _DATATYPES[dtype], array.shape, data.reshape(-1).view(np.uint8).data)

    @classmethod
    def from_elements(cls, name: str, elements: Sequence[Buffer], shape: tuple[int, ...] | None = None) -> Self:
        """Return a ``BYTES`` tensor of `elements`, of one dimension unless `shape` says otherwise."""
        parts: list[Buffer] = []
        for element in elements:
            parts += (struct.pack("<I", len(element)), element)
        return cls(name, BYTES, (len(elements),) if shape is None else shape, b"".join(parts))

    @classmethod
    def from_strings(cls, name: str, strings: Iterable[str]) -> Self:
        """Return a one-dimensional ``BYTES`` tensor of UTF-8 `strings`; lone surrogates are kept."""
        return cls.from_elements(name, [text.encode("utf-8", "surrogatepass") for text in strings])

    def numpy(self) -> npt.NDArray[Any]:
        """Return the array (read-only, no copy); raises :class:`InvalidArgumentError` where bytes and shape differ.

        ``BYTES`` become an array of objects, each its bytes.
        """
        if self.datatype == BYTES:
            array = np.empty(math.prod(self.shape), object)
            array[:] = [bytes(element) for element in self.elements()]
            return array.reshape(self.shape)
        dtype = DTYPES.get(self.datatype)
        if dtype is None:
            raise InvalidArgumentError(
                f"Tensor '{self.name}' has datatype '{self.datatype}'; expected one of {', '.join(DATATYPES)}."
            )
        self.check_size(dtype)
        array = np.frombuffer(self.data, dtype=dtype).reshape(self.shape)
        array.flags.writeable = False
        return array

    def check_size(self, dtype: np.dtype[Any]) -> None:
        """Raise :class:`InvalidArgumentError` unless the bytes are those of so many elements of `dtype`."""
        expected, got = math.prod(self.shape) * dtype.itemsize, memoryview(self.data).nbytes
        if got != expected or any(side < 0 for side in self.shape):
            raise InvalidArgumentError(
                f"Tensor '{self.name}' of shape {list(self.shape)} and datatype {self.datatype} has {got} bytes; "
                f"expected {expected}."
            )

    def elements(self) -> list[memoryview]:
        """Return the elements of a ``BYTES`` tensor (no copy); raises :class:`InvalidArgumentError` if malformed."""
        if self.datatype != BYTES:
            raise InvalidArgumentError(f"Tensor '{self.name}' has datatype {self.datatype}; expected BYTES.")
        view, found, at = memoryview(self.data), [], 0
        while at + 4 <= len(view):
            (length,) = struct.unpack_from("<I", view, at)
            at += 4 + length
            found.append(view[at - length : at])
        if at != len(view) or len(found) != math.prod(self.shape):
            raise InvalidArgumentError(
                f"Tensor '{self.name}' of shape {list(self.shape)} does not hold that many BYTES elements; expected a "
                "4-byte little-endian length before each element."
            )
        return found

    def strings(self) -> list[str]:
        """Return the elements of a ``BYTES`` tensor as UTF-8 text."""
        return [str(element, "utf-8", "surrogatepass") for element in self.elements()]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, datatype (of the Open Inference Protocol) and shape of an input or output; -1 is any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype that `datatype` names; ``BYTES`` are objects."""
        return np.dtype(object) if self.datatype == BYTES else DTYPES[self.datatype]

    def fits(self, datatype: str, shape: tuple[int, ...]) -> bool:
        """Tell whether a tensor of `datatype` and `shape` is one of these."""
        return (
            datatype == self.datatype
            and len(shape) == len(self.shape)
            and all(wanted in (-1, given) for wanted, given in zip(self.shape, shape, strict=True))
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and returns."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def batches(self) -> bool:
        """Whether requests can be put together along axis 0: it is of any size in every input and output.

        Where no input has another axis, it is taken for one sequence, not for rows.
        """
        is_open = all(spec.shape[:1] == (-1,) for spec in (*self.inputs, *self.outputs))
        return is_open and any(len(spec.shape) > 1 for spec in self.inputs)


class InferenceRequest(msgspec.Struct, frozen=True):
    """One call of one model.

    `deadline` is a :func:`time.monotonic` instant in seconds (the clock is the same in every process of a machine);
    None leaves it to the model's default. `priority` 1 is the highest. Requests with one `sticky_key` go to the same
    version while the versions' weights stay. `outputs` are the names of those wanted; all if there are none.
    `classes` says of which outputs not the tensor is wanted, but its so many largest values with their labels.
    """

    id: str
    model: str
    inputs: tuple[Tensor, ...]
    parameters: Mapping[str, Any] = {}
    version: str | None = None
    priority: int = HIGHEST_PRIORITY
    deadline: float | None = None
    sticky_key: str | None = None
    outputs: tuple[str, ...] = ()
    classes: Mapping[str, int] = {}


class Answer(msgspec.Struct, frozen=True):
    """What a pipeline returns for one request: tensors, values that are no tensors, and milliseconds by stage."""

    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Any] = {}
    timing_ms: Mapping[str, float] = {}

    def output(self, name: str) -> Tensor:
        """Return the output called `name`; raises KeyError."""
        for tensor in self.outputs:
            if tensor.name == name:
                return tensor
        raise KeyError(name)


class InferenceResponse(msgspec.Struct, frozen=True):
    """The answer to a request, and who gave it."""

    request_id: str
    model: str
    version: str
    answer: Answer


def deadline_in(seconds: float) -> float:
    """Return the deadline that lies `seconds` from now."""
    return time.monotonic() + seconds
