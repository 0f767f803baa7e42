from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.batching.buckets import bucket_of, rows_of
from paddlewheel.inference import InferenceRequest, Tensor


def request(*tensors: Tensor) -> InferenceRequest:
    """Return a request with these inputs."""
    return InferenceRequest("id", "model", tensors)


def tensor(shape: tuple[int, ...], name: str = "x", dtype: str = "float32") -> Tensor:
    """Return a tensor of zeros."""
    return Tensor.from_numpy(name, np.zeros(shape, dtype))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)), min_size=2, max_size=2))
def test_tensors_share_if_they_differ_in_rows_only(shapes: list[tuple[int, int, int]]) -> None:
    """Two requests have one bucket exactly if their arrays can be put together along the first dimension."""
    one, other = (request(tensor(shape)) for shape in shapes)
    assert (bucket_of("tensor", one) == bucket_of("tensor", other)) == (shapes[0][1:] == shapes[1][1:])


def test_names_and_datatypes_part_tensors() -> None:
    """The same shape under another name, of another datatype, or beside another input is another bucket."""
    plain = request(tensor((1, 2)))
    others = [
        request(tensor((1, 2), name="y")),
        request(tensor((1, 2), dtype="int64")),
        request(tensor((1, 2)), tensor((1, 2), "y")),
    ]
    assert all(bucket_of("tensor", other) != bucket_of("tensor", plain) for other in others)


def test_pictures_always_share() -> None:
    """The OCR pipeline puts lines together itself, so any two pictures may be in one batch, each as one row."""
    pictures = [request(Tensor.from_elements("image", [bytes(size)])) for size in (10, 10_000)]
    assert bucket_of("ocr", pictures[0]) == bucket_of("ocr", pictures[1])
    assert [rows_of("ocr", picture) for picture in pictures] == [1, 1]


def test_rows_are_the_first_dimension() -> None:
    """A tensor request takes as many rows of a batch as it brings."""
    assert rows_of("tensor", request(tensor((3, 2)), tensor((3, 5), "y"))) == 3
