"""The classes of a classifier's answer: the largest scores of each row, with their names.

The form is that of the protocol's classification extension, as Triton writes it: texts `score:index:label`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddlewheel.errors import InvalidArgumentError
from paddlewheel.inference import BYTES, Tensor


def top_classes(tensor: Tensor, count: int, labels: Sequence[str], *, rows: bool) -> Tensor:
    """Return the `count` largest values of `tensor` as texts, the largest first: BYTES [count], or [rows, count].

    `labels` are the names by index; an index that has none goes without. With fewer values all are returned.
    Raises :class:`InvalidArgumentError` if the tensor is no numbers.
    """
    if tensor.datatype in {BYTES, "BOOL"}:
        raise InvalidArgumentError(f"Output '{tensor.name}' is {tensor.datatype}; classes are of numbers.")
    array = tensor.numpy()
    scores = array.reshape(array.shape[0] if rows else 1, -1)
    count = min(count, scores.shape[1])
    order = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :count]
    texts = [
        f"{scores[row, index]:f}:{index}" + (f":{labels[index]}" if index < len(labels) else "")
        for row, indices in enumerate(order)
        for index in indices.tolist()
    ]
    shape = (len(scores), count) if rows else (count,)
    return Tensor.from_elements(tensor.name, [text.encode() for text in texts], shape)
