"""What every store does: one suite, and one state machine in which the store in memory is the model of the others."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from paddlewheel.errors import (
    ConfigurationError,
    InternalError,
    NotFoundError,
    PaddlewheelError,
    ResourceExhaustedError,
)
from paddlewheel.jobs import Job, JobStore, MemoryJobStore, SqliteJobStore

MAX_JOBS, MAX_BYTES = 4, 1000


def job_of(name: str, **values: Any) -> Job:
    """Return a new job."""
    return Job(**{"id": name, "model": "m", "created_at": 0.0, "deadline": 1000.0, "ttl_s": 10.0, **values})


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JobStore]:
    """Return an open store."""
    kept: JobStore = MemoryJobStore(MAX_JOBS, MAX_BYTES)
    if request.param == "sqlite":
        kept = SqliteJobStore(tmp_path / "data" / "jobs.sqlite", MAX_JOBS, MAX_BYTES)
    await kept.open()
    yield kept
    await kept.close()


async def test_what_is_added_is_there(store: JobStore) -> None:
    """A job and its request; others are not found, and there is no result yet."""
    job = job_of("a", metadata={"order": 7})
    await store.add(job, b"request")
    assert await store.get("a") == job
    assert await store.request("a") == b"request"
    for missing in (store.get("b"), store.request("b"), store.result("a"), store.change("b", lambda job: job)):
        with pytest.raises(NotFoundError):
            await missing
    assert await store.counts() == {"queued": 1}


async def test_claims_go_by_priority_and_age(store: JobStore) -> None:
    """The highest priority first, then the oldest; each is claimed once; one that is to wait is not due."""
    for job in (
        job_of("late", created_at=3.0),
        job_of("early", created_at=1.0),
        job_of("urgent", created_at=5.0, priority=0),
        job_of("waiting", created_at=0.0, not_before=50.0),
    ):
        await store.add(job, b"")
    claimed = [await store.claim(10.0, 5.0) for _ in range(4)]
    assert [job and job.id for job in claimed] == ["urgent", "early", "late", None]
    first = claimed[0]
    assert first is not None
    assert (first.status, first.attempts, first.fence, first.lease_until, first.started_at) == ("running", 1, 1, 15, 10)
    due = await store.claim(50.0, 5.0)
    assert due is not None


async def test_a_lost_lease_passes_on_and_the_late_finisher_is_fenced_off(store: JobStore) -> None:
    """Who lost a job cannot finish it any more; a lease that is renewed is not lost."""
    await store.add(job_of("a"), b"")
    first = await store.claim(0.0, 5.0)
    assert first is not None
    await store.change("a", lambda job: job.renewed(8.0) if job.holds(first.fence) else None)
    assert await store.claim(7.9, 5.0) is None
    second = await store.claim(8.0, 5.0)
    assert second is not None
    assert (second.fence, second.attempts, second.started_at) == (2, 2, 0.0)
    late = await store.change("a", lambda job: job.succeeded(9.0) if job.holds(first.fence) else None, b"late")
    assert late is None
    with pytest.raises(NotFoundError):
        await store.result("a")
    done = await store.change("a", lambda job: job.succeeded(9.0) if job.holds(second.fence) else None, b"good")
    assert done is not None
    assert (done.status, done.expires_at, done.done) == ("succeeded", 19.0, 1)
    assert await store.result("a") == b"good"
    with pytest.raises(NotFoundError):
        await store.request("a")
    assert await store.claim(1e9, 5.0) is None


async def test_what_failed_can_be_run_again(store: JobStore) -> None:
    """What it was called with is kept until it expires; it has all its time and attempts again."""
    await store.add(job_of("a", created_at=100.0, deadline=130.0), b"request")
    claimed = await store.claim(100.0, 5.0)
    assert claimed is not None
    await store.change("a", lambda job: job.failed(InternalError("x"), 101.0))
    again = await store.change("a", lambda job: job.again(200.0))
    assert again is not None
    assert (again.status, again.attempts, again.deadline, again.error) == ("queued", 0, 230.0, None)
    assert await store.request("a") == b"request"
    second = await store.claim(200.0, 5.0)
    assert second is not None
    assert second.fence == claimed.fence + 1
    await store.change("a", lambda job: job.cancelled(201.0))
    await store.sweep(211.0, 10.0)
    with pytest.raises(NotFoundError):
        await store.request("a")


async def test_a_key_makes_one_job(store: JobStore) -> None:
    """A second job with a key is the first one, whatever became of it, until that is forgotten."""
    first = job_of("a", key="k", digest=b"1")
    assert await store.add(first, b"request") == first
    assert (await store.add(job_of("b", key="k", digest=b"2"), b"")).id == "a"
    await store.change("a", lambda job: job.succeeded(0.0), b"")
    assert (await store.add(job_of("c", key="k"), b"")).status == "succeeded"
    assert sum((await store.counts()).values()) == 1
    await store.sweep(10.0, 10.0)
    assert (await store.add(job_of("d", key="k"), b"")).status == "expired"
    await store.sweep(20.0, 10.0)
    assert (await store.add(job_of("e", key="k"), b"")).id == "e"


async def test_pages(store: JobStore) -> None:
    """The newest first, from a cursor on, of one status or model."""
    for name in "abcd":
        await store.add(job_of(name, model="even" if name in "bd" else "odd"), b"")
    await store.change("b", lambda job: job.cancelled(0.0))
    assert [job.id for job in await store.page(None, 3, None, None)] == ["d", "c", "b"]
    assert [job.id for job in await store.page("b", 3, None, None)] == ["a"]
    assert [job.id for job in await store.page(None, 9, "cancelled", None)] == ["b"]
    assert [job.id for job in await store.page(None, 9, "queued", "even")] == ["d"]


async def test_bounds(store: JobStore) -> None:
    """Jobs and bytes are bounded; what was swept makes room."""
    for name in "abcd":
        await store.add(job_of(name), b"x" * 200)
    with pytest.raises(ResourceExhaustedError, match=r"at most 4 jobs and 1000 bytes.*jobs\.max_jobs"):
        await store.add(job_of("e"), b"")
    await store.change("a", lambda job: job.failed(InternalError("x"), 0.0))
    await store.sweep(9.9, 10.0)
    with pytest.raises(ResourceExhaustedError):
        await store.add(job_of("e"), b"")
    await store.sweep(10.0, 10.0)
    with pytest.raises(ResourceExhaustedError):
        await store.add(job_of("e"), b"x" * 401)
    await store.add(job_of("e"), b"x" * 400)
    assert await store.counts() == {"queued": 4, "expired": 1}


async def test_expired_is_remembered_and_then_forgotten(store: JobStore) -> None:
    """Past its time to live a job is known to have been, without its result; later it is not known."""
    await store.add(job_of("a"), b"request")
    await store.change("a", lambda job: job.succeeded(0.0), b"result")
    await store.sweep(10.0, 10.0)
    assert (await store.get("a")).status == "expired"
    with pytest.raises(NotFoundError):
        await store.result("a")
    await store.sweep(19.9, 10.0)
    assert (await store.get("a")).status == "expired"
    await store.sweep(20.0, 10.0)
    with pytest.raises(NotFoundError):
        await store.get("a")


async def test_a_file_outlives_its_store(tmp_path: Path) -> None:
    """Jobs, requests and results are there when the file is opened again; a foreign file is refused."""
    file = tmp_path / "jobs.sqlite"
    first = SqliteJobStore(file, MAX_JOBS, MAX_BYTES)
    await first.open()
    await first.add(job_of("a"), b"request")
    assert _modes(tmp_path) == {0o600}
    await first.add(job_of("b"), b"request")
    await first.claim(0.0, 5.0)
    await first.change("b", lambda job: job.succeeded(0.0), b"result")
    await first.close()
    second = SqliteJobStore(file, MAX_JOBS, MAX_BYTES)
    await second.open()
    assert await second.counts() == {"running": 1, "succeeded": 1}
    assert await second.request("a") == b"request"
    assert await second.result("b") == b"result"
    again = await second.claim(5.0, 5.0)
    assert again is not None
    assert (again.id, again.attempts) == ("a", 2)
    await second.close()
    file.write_bytes(b"this is no database, but long enough to be taken for a broken one" * 100)
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        await SqliteJobStore(file, MAX_JOBS, MAX_BYTES).open()


def _modes(folder: Path) -> set[int]:
    return {each.stat().st_mode & 0o777 for each in folder.iterdir()}


class Stores(RuleBasedStateMachine):
    """Every step on every store gives what it gives in memory."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = MemoryJobStore(MAX_JOBS, MAX_BYTES)
        self.folder = tempfile.TemporaryDirectory()
        self.other = SqliteJobStore(Path(self.folder.name) / "jobs.sqlite", MAX_JOBS, MAX_BYTES)
        self.loop.run_until_complete(self.other.open())
        self.now, self.count = 0.0, 0

    def teardown(self) -> None:
        """Close the store."""
        self.loop.run_until_complete(self.other.close())
        self.folder.cleanup()
        self.loop.close()

    def both(self, step: Any) -> Any:
        """Take a step on both and return what came of it, once it is known to be the same."""

        async def take(store: JobStore) -> Any:
            try:
                return await step(store)
            except PaddlewheelError as error:
                return error.record()

        expected, found = (self.loop.run_until_complete(take(store)) for store in (self.model, self.other))
        assert found == expected
        return expected

    @rule(
        target=jobs,
        priority=st.integers(0, 2),
        wait=st.integers(0, 5),
        size=st.sampled_from([0, 10, 400, 1001]),
        key=st.sampled_from([None, None, "k", "l"]),
    )
    def add(self, priority: int, wait: int, size: int, key: str | None) -> str:
        """Add a job."""
        self.count += 1
        job = job_of(f"{self.count}", created_at=self.now, priority=priority, not_before=self.now + wait, key=key)
        self.both(lambda store: store.add(job, b"r" * size))
        return job.id

    @rule(seconds=st.sampled_from([0.0, 1.0, 4.0, 11.0]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    @rule(lease_s=st.integers(1, 6))
    def claim(self, lease_s: int) -> None:
        """Claim the next."""
        self.both(lambda store: store.claim(self.now, lease_s))

    @rule(name=jobs, fence=st.integers(1, 3), what=st.sampled_from(["succeed", "fail", "retry", "give back", "renew"]))
    def settle(self, name: str, fence: int, what: str) -> None:
        """Do something with a claim that may have been lost."""
        changes = {
            "succeed": lambda job: job.succeeded(self.now),
            "fail": lambda job: job.failed(InternalError("x"), self.now),
            "retry": lambda job: job.retried(InternalError("x"), self.now + 2),
            "give back": lambda job: job.given_back(),
            "renew": lambda job: job.renewed(self.now + 3),
        }
        result = b"result" if what == "succeed" else None
        self.both(
            lambda store: store.change(name, lambda job: changes[what](job) if job.holds(fence) else None, result)
        )

    @rule(name=jobs)
    def cancel(self, name: str) -> None:
        """Cancel a job that is not over."""
        self.both(lambda store: store.change(name, lambda job: None if job.finished else job.cancelled(self.now)))

    @rule(name=jobs)
    def again(self, name: str) -> None:
        """Retry a job that failed or was cancelled."""
        ended = ("failed", "cancelled")
        self.both(lambda store: store.change(name, lambda job: job.again(self.now) if job.status in ended else None))

    @rule(
        before=st.none() | st.integers(1, 9).map(str),
        limit=st.integers(1, 5),
        status=st.sampled_from([None, "queued", "failed"]),
        model=st.sampled_from([None, "m", "other"]),
    )
    def page(self, before: str | None, limit: int, status: str | None, model: str | None) -> None:
        """Look at a page."""
        self.both(lambda store: store.page(before, limit, status, model))

    @rule(name=jobs)
    def look(self, name: str) -> None:
        """Look at everything of a job."""
        for step in ("get", "request", "result"):
            self.both(lambda store, step=step: getattr(store, step)(name))

    @rule(name=consumes(jobs))
    def forget(self, name: str) -> None:
        """Look no more at a job."""

    @rule(keep_s=st.sampled_from([0.0, 10.0]))
    def sweep(self, keep_s: float) -> None:
        """Sweep."""
        self.both(lambda store: store.sweep(self.now, keep_s))

    @invariant()
    def counts_agree(self) -> None:
        """Both have as many of each status."""
        self.both(lambda store: store.counts())


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
