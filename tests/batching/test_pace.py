from __future__ import annotations

import pytest

from paddlewheel.batching.pace import Pace


def test_nothing_is_known_at_first() -> None:
    """Without a sample a queue is expected to be quick, and nobody is refused on the strength of that."""
    pace = Pace()
    assert pace.wait_s(100, 2) == 0
    assert not pace.trusted


def test_it_is_trusted_after_a_few_batches() -> None:
    """Four batches are too few, five are enough."""
    pace, trusted = Pace(), []
    for _ in range(5):
        pace.record(1, 1)
        trusted.append(pace.trusted)
    assert trusted == [False, False, False, False, True]


def test_a_steady_pace_is_met_exactly() -> None:
    """Batches of four in two seconds: half a second each, shared out over the workers."""
    pace = Pace()
    for _ in range(10):
        pace.record(2.0, 4)
    assert pace.wait_s(10, 1) == pytest.approx(5.0)
    assert pace.wait_s(10, 2) == pytest.approx(2.5)
    assert pace.wait_s(10, 0) == pytest.approx(5.0), "without a worker, as if one came at once"


def test_a_change_is_followed_and_an_outlier_forgotten() -> None:
    """After twenty quick batches little is left of slow ones; one slow batch among quick ones moves it by a fifth."""
    pace = Pace()
    for _ in range(5):
        pace.record(10, 1)
    for _ in range(20):
        pace.record(1, 1)
    assert pace.wait_s(1, 1) == pytest.approx(1, abs=0.15)
    before = pace.wait_s(1, 1)
    pace.record(before + 10, 1)
    assert pace.wait_s(1, 1) - before == pytest.approx(2)
