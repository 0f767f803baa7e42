"""Tensors of the Open Inference Protocol in JSON: read without a silent cast, written so that any parser takes them.

A value that its datatype cannot hold is refused. JSON knows no NaN and no infinity: an output that has them is refused
too, unless the caller asked for their names (request parameter ``"nan": "string"``); then both sides may use those.
Bytes that are no UTF-8 text go as base64, marked by the tensor's parameter ``"content_type": "base64"``.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from paddlewheel.errors import InvalidArgumentError, UnprintableError
from paddlewheel.inference import BYTES, DATATYPES, DTYPES, Tensor

BASE64: Final = "base64"
_NAMES: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BINARY_ONLY: Final = "BF16"
_Shape = tuple[int, ...]


def read_tensor(name: str, datatype: str, shape: _Shape, data: Any, parameters: Mapping[str, Any]) -> Tensor:
    """Return the tensor whose elements are the JSON values `data`; raises :class:`InvalidArgumentError`."""
    if not isinstance(data, list):
        raise InvalidArgumentError(f"Tensor '{name}' has data that is no list; expected a list of its elements.")
    if datatype == BYTES:
        return _read_bytes(name, shape, data, parameters)
    if datatype not in DTYPES or datatype == _BINARY_ONLY:
        hint = "send it as binary data" if datatype == _BINARY_ONLY else f"expected one of {', '.join(DATATYPES)}"
        raise InvalidArgumentError(f"Tensor '{name}' has datatype '{datatype:.20}', which has no JSON form; {hint}.")
    array = _array(name, datatype, data)
    if math.prod(shape) != array.size or (array.ndim > 1 and array.shape != shape):
        raise InvalidArgumentError(
            f"Tensor '{name}' has data of shape {list(array.shape)}; expected {list(shape)}, nested or flat."
        )
    return Tensor.from_numpy(name, array.reshape(shape))


def _array(name: str, datatype: str, data: list[Any]) -> npt.NDArray[Any]:
    dtype = DTYPES[datatype]
    try:
        given = np.array(data)
    except (ValueError, OverflowError):
        raise InvalidArgumentError(f"Tensor '{name}' has data that is not evenly nested; expected its shape.") from None
    if dtype.kind == "f" and given.dtype.kind in "UO":
        given = _with_names(name, datatype, data)
    if dtype.kind == "u" and given.dtype.kind == "f":
        given = _large(given, data)
    if given.size == 0:
        return given.astype(dtype)
    allowed = {"b": "bui", "f": "fui"}.get(dtype.kind, "ui")
    if given.dtype.kind not in allowed:
        raise InvalidArgumentError(
            f"Tensor '{name}' of datatype {datatype} has {_kind(given)} in its data; expected {_expected(dtype)}."
        )
    return given if given.dtype == dtype else _cast(name, datatype, given)


def _cast(name: str, datatype: str, given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `given` in another dtype; raises :class:`InvalidArgumentError` where a value does not fit."""
    dtype = DTYPES[datatype]
    with np.errstate(over="ignore"):
        array = given.astype(dtype)
    if dtype.kind == "f" and np.isfinite(array).all():
        return array
    lost = np.isinf(array) & np.isfinite(given) if dtype.kind == "f" else array != given
    if lost.any():
        value = given[lost].flat[0]
        raise InvalidArgumentError(f"Tensor '{name}' has the value {value}, which does not fit {datatype}.")
    return array


def _large(given: npt.NDArray[Any], data: list[Any]) -> npt.NDArray[Any]:
    """Return whole numbers that numpy took for floats, since some of them are too large for INT64, as what they are."""
    values = np.array(data, object)
    if all(type(value) is int and value >= 0 for value in values.flat):
        return values.astype(np.uint64)
    return given


def _with_names(name: str, datatype: str, data: list[Any]) -> npt.NDArray[Any]:
    """Return floats among which there are names of those that JSON does not have."""

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(each) for each in value]
        if isinstance(value, str) and value in _NAMES:
            return _NAMES[value]
        if type(value) in (int, float):
            return value
        raise InvalidArgumentError(
            f"Tensor '{name}' of datatype {datatype} has {value!r:.40} in its data; expected numbers, or one of "
            f"{', '.join(map(repr, _NAMES))}."
        )

    return np.array(number(data), np.float64)


def _read_bytes(name: str, shape: _Shape, data: list[Any], parameters: Mapping[str, Any]) -> Tensor:
    elements = list(_flat(data))
    if math.prod(shape) != len(elements) or not all(isinstance(each, str) for each in elements):
        raise InvalidArgumentError(
            f"Tensor '{name}' of datatype BYTES and shape {list(shape)} has {len(elements)} elements; expected that "
            "many, each a text."
        )
    if parameters.get("content_type") != BASE64:
        encoded = [each.encode("utf-8", "surrogatepass") for each in elements]
        return Tensor.from_elements(name, encoded, shape)
    try:
        return Tensor.from_elements(name, [base64.b64decode(each, validate=True) for each in elements], shape)
    except (binascii.Error, ValueError):
        raise InvalidArgumentError(f"Tensor '{name}' says that it is base64, and is not.") from None


def _flat(data: Sequence[Any]) -> Any:
    for each in data:
        if isinstance(each, list):
            yield from _flat(each)
        else:
            yield each


def write_tensor(tensor: Tensor, *, names_for_nan: bool) -> dict[str, Any]:
    """Return `tensor` as plain JSON data; raises :class:`UnprintableError` where JSON has no form for a value."""
    body: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    if tensor.datatype == BYTES:
        elements = tensor.elements()
        try:
            return body | {"data": [str(each, "utf-8") for each in elements]}
        except UnicodeDecodeError:
            data = [base64.b64encode(each).decode() for each in elements]
            return body | {"parameters": {"content_type": BASE64}, "data": data}
    if tensor.datatype == _BINARY_ONLY:
        raise UnprintableError(f"Output '{tensor.name}' is BF16, which has no JSON form; ask for binary data.")
    flat = tensor.numpy().ravel()
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        if not names_for_nan:
            raise UnprintableError(
                f"Output '{tensor.name}' holds NaN or infinity, which JSON has no numbers for; ask for binary data, or "
                'send the parameter "nan": "string".'
            )
        return body | {"data": [value if math.isfinite(value) else _name(value) for value in flat.tolist()]}
    return body | {"data": flat}


def _name(value: float) -> str:
    return next(name for name, named in _NAMES.items() if named == value or (math.isnan(named) and math.isnan(value)))


def _kind(array: npt.NDArray[Any]) -> str:
    kinds = {
        "b": "booleans",
        "u": "whole numbers",
        "i": "whole numbers",
        "f": "fractions or too large numbers",
        "U": "text",
    }
    return kinds.get(array.dtype.kind, "values of several kinds")


def _expected(dtype: np.dtype[Any]) -> str:
    return {"b": "true and false", "f": "numbers"}.get(dtype.kind, "whole numbers")
