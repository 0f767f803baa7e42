from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddlewheel.errors import PayloadTooLargeError
from paddlewheel.workers.arena import Arena

CAPACITY = 1 << 28
LARGE = 64 << 20


@pytest.fixture
def arena() -> Iterator[Arena]:
    """Return an arena."""
    arena = Arena.create(CAPACITY)
    yield arena
    arena.close()


def taken(arena: Arena) -> int:
    """Return the bytes of memory that the arena really takes."""
    return os.fstat(arena.descriptor).st_blocks * 512


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.binary(max_size=300), max_size=20))
def test_the_other_side_reads_what_was_written(arena: Arena, parts: list[bytes]) -> None:
    """Through a second mapping of the same descriptor, as a worker has it, every part is whole, at aligned offsets."""
    other = Arena(os.dup(arena.descriptor), arena.capacity)
    arena.reset()
    offsets = [arena.write(part) for part in parts]
    assert [bytes(other.read(offset, len(part))) for offset, part in zip(offsets, parts, strict=True)] == parts
    assert all(offset % 64 == 0 for offset in offsets)
    other.close()


def test_any_buffer_can_be_written(arena: Arena) -> None:
    """A view of numbers is written as its bytes."""
    view = memoryview(b"12345678").cast("I")
    assert bytes(arena.read(arena.write(view), 8)) == b"12345678"


def test_what_is_read_cannot_be_changed(arena: Arena) -> None:
    """A worker's model cannot write into the request."""
    view = arena.read(arena.write(b"abc"), 3)
    with pytest.raises(TypeError):
        view[0] = 1


@pytest.mark.parametrize(("offset", "length"), [(0, 1), (mmap.PAGESIZE, -1), (mmap.PAGESIZE, CAPACITY + 1), (-1, 1)])
def test_nothing_outside_is_read(arena: Arena, offset: int, length: int) -> None:
    """Neither the flags in front nor what lies behind can be asked for."""
    with pytest.raises(ValueError, match="outside the arena"):
        arena.read(offset, length)


def test_more_than_it_holds_is_refused(arena: Arena) -> None:
    """The refusal names the limit, and what was written before is still there."""
    offset = arena.write(b"first")
    with pytest.raises(PayloadTooLargeError, match=str(arena.capacity - mmap.PAGESIZE)):
        arena.write(bytes(arena.capacity))
    assert bytes(arena.read(offset, 5)) == b"first"


def test_memory_is_taken_as_written_and_given_back(arena: Arena) -> None:
    """An arena costs nothing until it is used; what one large batch took is free again after the next reset."""
    assert taken(arena) <= mmap.PAGESIZE
    arena.write(bytes(LARGE))
    assert taken(arena) >= LARGE
    arena.reset()
    assert taken(arena) <= LARGE // 4
    arena.write(b"small")
    arena.reset()
    assert taken(arena) <= LARGE // 4


def test_the_flags_of_the_abandoned(arena: Arena) -> None:
    """The other side sees which item is abandoned; the next batch begins without flags."""
    other = Arena(os.dup(arena.descriptor), arena.capacity)
    arena.abandon(3)
    assert [other.abandoned(index) for index in range(5)] == [False, False, False, True, False]
    arena.reset()
    assert not other.abandoned(3)
    other.close()
