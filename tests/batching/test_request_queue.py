from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from batching.conftest import MakeQueued
from paddlewheel.batching import QueuedRequest, RequestQueue
from paddlewheel.errors import InvalidArgumentError, ResourceExhaustedError
from paddlewheel.inference import Answer, InferenceRequest

LEVELS, MOST = 3, 5


def queue(max_size: int = MOST) -> RequestQueue:
    """Return an empty queue."""
    return RequestQueue("model", max_size=max_size, priority_levels=LEVELS)


def names(batch: list[QueuedRequest]) -> list[str]:
    """Return the ids of the requests of a batch."""
    return [each.request.id for each in batch]


def test_higher_priority_first_then_first_in_first_out(queued: MakeQueued) -> None:
    """The order is that of the priority, and of arrival within one."""
    waiting = queue()
    for name, priority in (("c1", 3), ("a1", 1), ("b1", 2), ("a2", 1)):
        waiting.put(queued(name, priority=priority))
    assert names(waiting.take(8, 0)) == ["a1", "a2", "b1", "c1"]


def test_one_that_is_promoted_goes_behind_the_highest(queued: MakeQueued) -> None:
    """It passes those of its own priority; one that is not here any more stays away."""
    waiting = queue()
    first, second, last = queued("a1", priority=1), queued("c1", priority=3), queued("c2", priority=3)
    for each in (first, second, last):
        waiting.put(each)
    waiting.promote(last)
    waiting.put(queued("a2", priority=1))
    assert names(waiting.take(8, 0)) == ["a1", "c2", "a2", "c1"]
    waiting.promote(second)
    assert len(waiting) == 0


def test_full_is_refused_with_the_time_to_retry(queued: MakeQueued) -> None:
    """One over the bound is refused, names model and bound, and leaves the others as they are."""
    waiting = queue(2)
    for name in ("one", "two"):
        waiting.put(queued(name))
    with pytest.raises(ResourceExhaustedError, match=r"'model' is full \(2 waiting\)") as refusal:
        waiting.check_room(1, 7)
    assert refusal.value.retry_after_s == 7
    assert names(waiting.take(8, 0)) == ["one", "two"]


@pytest.mark.parametrize("priority", [0, -1, LEVELS + 1])
def test_a_priority_that_does_not_exist_is_refused(queued: MakeQueued, priority: int) -> None:
    """The refusal says which there are."""
    with pytest.raises(InvalidArgumentError, match=rf"Priority {priority} .* 1 \(highest\) to {LEVELS}"):
        queue().put(queued(priority=priority))


def test_only_one_bucket_shares_a_batch(queued: MakeQueued) -> None:
    """Those of other buckets are passed over and keep their places."""
    waiting = queue()
    for name, bucket in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "b")):
        waiting.put(queued(name, bucket=bucket))
    assert names(waiting.take(8, 0)) == ["1", "3"]
    assert names(waiting.take(8, 0)) == ["2", "4"]


def test_rows_are_counted_and_none_is_passed_over(queued: MakeQueued) -> None:
    """A batch ends before the first that does not fit, even if a smaller one behind it would; a head always goes."""
    waiting = queue()
    for name, rows in (("3", 3), ("2", 2), ("1", 1), ("9", 9)):
        waiting.put(queued(name, rows=rows))
    assert [names(waiting.take(4, 0)) for _ in range(3)] == [["3"], ["2", "1"], ["9"]]


def test_the_late_and_the_abandoned_are_dropped(queued: MakeQueued) -> None:
    """Neither reaches a batch; a deadline that is now has passed."""
    waiting = queue()
    late, gone, good = queued("late", deadline=10), queued("gone"), queued("good", deadline=10.1)
    for each in (late, gone, good):
        waiting.put(each)
    gone.leave()
    assert len(waiting) == 2
    assert names(waiting.take(8, 10)) == ["good"]
    assert len(waiting) == 0


def test_leaving_a_batch_is_told_to_who_runs_it(queued: MakeQueued) -> None:
    """Once taken, a request that is left calls what its runner chose, and only once."""
    waiting, told = queue(), []
    request = queued()
    waiting.put(request)
    waiting.take(1, 0)
    request.on_leave(lambda: told.append("left"))
    request.leave()
    request.leave()
    assert told == ["left"]
    assert request.answer.cancelled()


def test_leaving_after_the_answer_changes_nothing(queued: MakeQueued) -> None:
    """Who has the answer has no place to give up."""
    request, told = queued(), []
    request.on_leave(lambda: told.append("left"))
    request.answer.set_result(Answer(()))
    request.leave()
    assert not told
    assert request.answer.result() == Answer(())


def test_what_is_put_back_comes_first_and_may_be_left(queued: MakeQueued) -> None:
    """A request that was taken and put back is the head again, in a full queue too, and leaves it like any other."""
    waiting = queue(1)
    first, second = queued("first"), queued("second")
    waiting.put(first)
    waiting.take(1, 0)
    waiting.put(second)
    waiting.put_back(first)
    assert waiting.head() is first
    first.leave()
    assert waiting.head() is second


def test_one_that_must_be_alone_is_alone(queued: MakeQueued) -> None:
    """It neither takes others along nor goes with them, whatever stands before or behind it."""
    waiting = queue()
    for name in ("1", "2", "3"):
        each = queued(name)
        each.alone = name == "2"
        waiting.put(each)
    assert [names(waiting.take(8, 0)) for _ in range(2)] == [["1", "3"], ["2"]]
    assert waiting.head() is None


def test_counting_what_a_batch_could_have(queued: MakeQueued) -> None:
    """Rows of the head's bucket, up to the limit asked for; a head that must be alone counts itself."""
    waiting = queue()
    head = queued(rows=2)
    for each in (head, queued(rows=2), queued(bucket="b", rows=2), queued(rows=2)):
        waiting.put(each)
    assert [waiting.waiting_like(head, limit) for limit in (1, 4, 5, 8)] == [1, 4, 5, 6]
    head.alone = True
    assert waiting.waiting_like(head, 8) == 2


async def leave(waiting: RequestQueue, count: int) -> None:
    """Let `count` callers come and leave without an answer."""
    for _ in range(count):
        gone = QueuedRequest(InferenceRequest("gone", "model", ()), "a", 0.0, asyncio.Future())
        waiting.put(gone)
        gone.leave()
    await asyncio.sleep(0)


async def test_newest_first_once_callers_keep_leaving(queued: MakeQueued) -> None:
    """The newest of a priority goes first until nothing waits any more; then it is the oldest again."""
    waiting = queue(100)
    for name, priority in (("low", 2), ("old", 1), ("new", 1)):
        waiting.put(queued(name, priority=priority, bucket=name))
    await leave(waiting, 3)
    assert not waiting.overloaded
    await leave(waiting, 1)
    assert waiting.overloaded
    assert [names(waiting.take(1, 0)) for _ in range(3)] == [["new"], ["old"], ["low"]]
    assert not waiting.overloaded
    for name in ("old", "new"):
        waiting.put(queued(name))
    assert names(waiting.take(8, 0)) == ["old", "new"]


async def test_one_who_leaves_now_and_then_is_no_overload(queued: MakeQueued) -> None:
    """As long as most get their answers, the order stays."""
    waiting = queue(100)
    waiting.put(queued("old"))
    for _ in range(20):
        await leave(waiting, 1)
        for _ in range(4):
            served = QueuedRequest(InferenceRequest("served", "model", ()), "b", 0.0, asyncio.Future())
            waiting.put(served)
            waiting.remove(served)
            served.answer.set_result(Answer(()))
        await asyncio.sleep(0)
    assert not waiting.overloaded


async def test_callers_who_leave_what_runs_count_too(queued: MakeQueued) -> None:
    """A queue that hands out each request just before its caller leaves serves nobody either."""
    waiting = queue(100)
    waiting.put(queued("old", bucket="b"))
    for _ in range(4):
        late = QueuedRequest(InferenceRequest("late", "model", (), priority=1), "a", 0.0, asyncio.Future())
        waiting.put(late)
        waiting.remove(late)
        late.on_leave(lambda: None)
        late.leave()
    await asyncio.sleep(0)
    assert waiting.overloaded


async def test_under_overload_what_is_tried_again_still_comes_first(queued: MakeQueued) -> None:
    """A request whose batch failed does not wait behind newcomers for its second try."""
    waiting = queue(100)
    again = queued("again")
    waiting.put(again)
    waiting.put(queued("other", bucket="b"))
    assert names(waiting.take(8, 0)) == ["again"]
    await leave(waiting, 4)
    again.alone = True
    waiting.put_back(again)
    waiting.put(queued("new"))
    assert [names(waiting.take(8, 0)) for _ in range(3)] == [["again"], ["new"], ["other"]]


@dataclass
class Expected:
    """What the queue should hold, in the plainest form: lists, each in the order of arrival."""

    levels: list[list[QueuedRequest]] = field(default_factory=lambda: [[] for _ in range(LEVELS)])
    lost: float = 0.0
    """The moving average of those whose callers left."""
    overloaded: bool = False

    def waiting(self) -> list[QueuedRequest]:
        """Return all in the order in which they go."""
        if not self.overloaded:
            return [each for level in self.levels for each in level]
        newest_first = [each for level in self.levels for each in reversed(level)]
        return sorted(newest_first, key=lambda each: (each.request.priority, not each.alone))

    def remove(self, queued: QueuedRequest) -> None:
        """Take one out."""
        self.levels[queued.request.priority - 1].remove(queued)
        self.overloaded = self.overloaded and any(self.levels)

    def ended(self, *, lost: bool) -> None:
        """Take in how one ended."""
        self.lost += 0.1 * (lost - self.lost)
        if self.lost > 0.3:
            self.lost, self.overloaded = 0.0, any(self.levels)

    def take(self, limit: int, now: float) -> list[QueuedRequest]:
        """Take a batch: drop, then the head, then what shares with it until the first that does not fit."""
        batch: list[QueuedRequest] = []
        for each in self.waiting():
            deadline = each.request.deadline
            if each.answer.done() or (deadline is not None and deadline <= now):
                self.remove(each)
            elif batch and (each.alone or batch[0].alone or each.bucket != batch[0].bucket):
                continue
            elif batch and sum(other.rows for other in [*batch, each]) > limit:
                break
            else:
                self.remove(each)
                batch.append(each)
        return batch


class QueueMachine(RuleBasedStateMachine):
    """Any sequence of what edges and schedulers do with a queue, beside the plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.queue, self.expected = queue(), Expected()
        self.running: list[QueuedRequest] = []
        self.told: list[QueuedRequest] = []
        self.now, self.count = 0.0, 0

    def teardown(self) -> None:
        """Close the loop that the futures belong to."""
        self.loop.close()

    def tick(self) -> None:
        """Let the loop tell the queue how a request ended."""
        self.loop.run_until_complete(asyncio.sleep(0))

    @rule(
        priority=st.integers(1, LEVELS),
        bucket=st.sampled_from("ab"),
        rows=st.integers(1, 4),
        patience=st.none() | st.floats(0, 5),
    )
    def put(self, priority: int, bucket: str, rows: int, patience: float | None) -> None:
        """Let a request come: it is taken unless the queue is full."""
        deadline = None if patience is None else self.now + patience
        self.count += 1
        request = InferenceRequest(str(self.count), "model", (), priority=priority, deadline=deadline)
        queued = QueuedRequest(request, bucket, self.now, self.loop.create_future(), rows)
        if len(self.expected.waiting()) >= MOST:
            with pytest.raises(ResourceExhaustedError):
                self.queue.check_room(1, 1)
        else:
            self.queue.check_room(1, 1)
            self.queue.put(queued)
            self.expected.levels[priority - 1].append(queued)

    @precondition(lambda self: self.expected.waiting())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """Let the caller of a waiting request leave: its place is free at once."""
        queued = data.draw(st.sampled_from(self.expected.waiting()))
        queued.leave()
        self.expected.remove(queued)
        self.tick()
        self.expected.ended(lost=True)

    @precondition(lambda self: self.expected.waiting())
    @rule(data=st.data())
    def promote(self, data: st.DataObject) -> None:
        """Let a waiting request go with those of the highest priority, as the last of them."""
        queued = data.draw(st.sampled_from(self.expected.waiting()))
        self.expected.levels[queued.request.priority - 1].remove(queued)
        self.queue.promote(queued)
        assert queued.request.priority == 1
        self.expected.levels[0].append(queued)

    @rule(limit=st.integers(1, 6), later=st.floats(0, 2))
    def take(self, limit: int, later: float) -> None:
        """Let a worker be idle: it gets what the model says."""
        self.now += later
        batch = self.queue.take(limit, self.now)
        assert batch == self.expected.take(limit, self.now)
        for queued in batch:
            queued.on_leave(lambda queued=queued: self.told.append(queued))
        self.running += batch

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave_running(self, data: st.DataObject) -> None:
        """Let the caller of a running request leave: its worker is told, the queue is as it was."""
        queued = data.draw(st.sampled_from(self.running))
        queued.leave()
        assert self.told == [queued]
        self.told.clear()
        self.running.remove(queued)
        self.tick()
        self.expected.ended(lost=True)

    @precondition(lambda self: self.running)
    @rule()
    def crash(self) -> None:
        """Put all that runs back to the front, each to run alone, in the order in which it was taken."""
        for queued in reversed(self.running):
            queued.alone = True
            self.queue.put_back(queued)
            self.expected.levels[queued.request.priority - 1].insert(0, queued)
        self.running.clear()

    @precondition(lambda self: self.running)
    @rule()
    def answer(self) -> None:
        """Answer all that runs."""
        for queued in self.running:
            queued.answer.set_result(Answer(()))
            self.tick()
            self.expected.ended(lost=False)
        self.running.clear()

    @invariant()
    def same_length_and_head(self) -> None:
        """Hold what the model holds."""
        waiting = self.expected.waiting()
        assert len(self.queue) == len(waiting)
        assert self.queue.head() is (waiting[0] if waiting else None)


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase
