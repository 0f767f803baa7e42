"""Shared memory between the front process and one worker: where tensors lie while a batch is under way.

A worker has two arenas: requests (the front writes, the worker reads) and responses (the other way round). An arena
is an anonymous memory file, handed over as a descriptor: it has no name that could be left behind, and it does not
count against a container's small ``/dev/shm``. It is as large as the address space allows for; only pages that were
written take memory, and :meth:`Arena.reset` gives back what an unusually large batch took.

A batch is laid out from the start of the arena, so views are valid until the next one is written. The first page of
the request arena holds a byte for each item of the batch; the front sets it when the item's caller has left.
"""

from __future__ import annotations

import mmap
import os
from typing import Self

from paddlewheel.errors import PayloadTooLargeError
from paddlewheel.inference import Buffer

_FLAGS = mmap.PAGESIZE
_ALIGNMENT = 64
_KEPT_BYTES = 8 << 20


class Arena:
    """A region of shared memory that one side fills batch by batch."""

    def __init__(self, descriptor: int, capacity: int) -> None:
        self.descriptor = descriptor
        self.capacity = capacity
        self._map = mmap.mmap(descriptor, capacity)
        self._view = memoryview(self._map)
        self._end = _FLAGS

    @classmethod
    def create(cls, capacity: int) -> Self:
        """Create an arena that can hold `capacity` bytes; none of them is taken yet."""
        descriptor = os.memfd_create("paddlewheel")
        size = -(-(capacity + _FLAGS) // mmap.PAGESIZE) * mmap.PAGESIZE
        os.ftruncate(descriptor, size)
        return cls(descriptor, size)

    def reset(self) -> None:
        """Forget the last batch; its views must not be used any more."""
        if self._end > _KEPT_BYTES:
            self._map.madvise(mmap.MADV_REMOVE, _KEPT_BYTES, self.capacity - _KEPT_BYTES)
        self._view[:_FLAGS] = bytes(_FLAGS)
        self._end = _FLAGS

    def write(self, data: Buffer) -> int:
        """Copy `data` in and return its offset."""
        source = memoryview(data).cast("B")
        offset = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        end = offset + len(source)
        if end > self.capacity:
            raise PayloadTooLargeError(
                f"The tensors of this batch take more than the {self.capacity - _FLAGS} bytes of a worker's arena."
            )
        self._view[offset:end] = source
        self._end = end
        return offset

    def read(self, offset: int, length: int) -> memoryview:
        """Return a read-only view of `length` bytes at `offset`."""
        if not _FLAGS <= offset <= offset + length <= self.capacity:
            raise ValueError(f"{length} bytes at {offset} lie outside the arena of {self.capacity} bytes")
        return self._view[offset : offset + length].toreadonly()

    def abandon(self, index: int) -> None:
        """Mark item `index` of the batch: nobody waits for it any more."""
        self._view[index] = 1

    def abandoned(self, index: int) -> bool:
        """Tell whether item `index` of the batch was marked."""
        return self._view[index] != 0

    def close(self) -> None:
        """Close the descriptor; the memory goes with the last view of it."""
        os.close(self.descriptor)
