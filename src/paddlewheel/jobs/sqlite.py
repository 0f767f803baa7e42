"""Jobs in one SQLite file: they survive the process, and ``kill -9`` of it.

The file is written ahead (WAL) and each step is a transaction that is on the disk before its method returns. One thread
has the connection, so steps never wait for each other's locks and the event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from paddlewheel.errors import ConfigurationError
from paddlewheel.jobs.job import Job
from paddlewheel.jobs.store import Change, no_such_job, store_is_full

Value = TypeVar("Value")
_VERSION: Final = 1
_LOCKED_S: Final = 1.0
_MODE: Final = 0o600
_SCHEMA: Final = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, model TEXT NOT NULL, status TEXT NOT NULL, priority INTEGER NOT NULL, created_at REAL NOT NULL,
    due_at REAL, late_at REAL, past_at REAL, key TEXT, job BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_due ON jobs (priority, created_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_late ON jobs (late_at) WHERE late_at IS NOT NULL;
CREATE INDEX jobs_past ON jobs (past_at) WHERE past_at IS NOT NULL;
CREATE UNIQUE INDEX jobs_key ON jobs (key) WHERE key IS NOT NULL;
CREATE INDEX jobs_status ON jobs (status);
CREATE TABLE payloads (
    id TEXT NOT NULL, kind TEXT NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (id, kind)
) STRICT;
CREATE INDEX payloads_size ON payloads (size);
"""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Job)


class SqliteJobStore:
    """A store for one server."""

    def __init__(self, file: Path, max_jobs: int, max_bytes: int) -> None:
        self._file = file
        self._max_jobs = max_jobs
        self._max_bytes = max_bytes
        self._thread = ThreadPoolExecutor(1, "jobs")

    async def open(self) -> None:
        """Open the file, or make it."""
        await self._do(self._connect)

    async def close(self) -> None:
        """Close the file."""
        await self._do(self._close)
        self._thread.shutdown()

    async def add(self, job: Job, request: bytes) -> Job:
        """Keep a new job."""

        def add() -> Job:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                for same in self._jobs("SELECT job FROM jobs WHERE key = ?", job.key):
                    return same
                (jobs,) = self._row("SELECT count(*) FROM jobs WHERE status != 'expired'")
                (size,) = self._row("SELECT coalesce(sum(size), 0) FROM payloads")
                if jobs >= self._max_jobs or size + len(request) > self._max_bytes:
                    raise store_is_full(self._max_jobs, self._max_bytes)
                self._put(job)
                self._put_payload(job.id, "request", request)
                return job

        return await self._do(add)

    async def get(self, job_id: str) -> Job:
        """Return a job."""
        return await self._do(lambda: self._job(job_id))

    async def request(self, job_id: str) -> bytes:
        """Return what a job was called with."""
        return await self._payload(job_id, "request")

    async def result(self, job_id: str) -> bytes:
        """Return what came of a job."""
        return await self._payload(job_id, "result")

    async def claim(self, now: float, lease_s: float) -> Job | None:
        """Take up the job whose turn it is."""

        def claim() -> Job | None:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                row = self._row(
                    "SELECT job FROM jobs WHERE due_at IS NOT NULL AND due_at <= ? "
                    "ORDER BY priority, created_at, id LIMIT 1",
                    now,
                )
                if row is None:
                    return None
                job = _decoder.decode(row[0]).claimed(now, lease_s)
                self._put(job)
                return job

        return await self._do(claim)

    async def change(self, job_id: str, change: Change, result: bytes | None = None) -> Job | None:
        """Change a job."""

        def apply() -> Job | None:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                job = change(self._job(job_id))
                if job is None:
                    return None
                self._put(job)
                if result is not None:
                    self._put_payload(job_id, "result", result)
                if job.status == "succeeded":
                    self._connection.execute("DELETE FROM payloads WHERE id = ? AND kind = 'request'", (job_id,))
                return job

        return await self._do(apply)

    async def sweep(self, now: float, keep_s: float) -> None:
        """Forget what is past its time."""

        def sweep() -> None:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                for job in self._jobs("SELECT job FROM jobs WHERE late_at <= ?", now):
                    self._put(job.late(now))
                for job in self._jobs("SELECT job FROM jobs WHERE past_at <= ?", now):
                    if job.status != "expired":
                        self._put(job.expired())
                        self._connection.execute("DELETE FROM payloads WHERE id = ?", (job.id,))
                    elif job.past(now - keep_s):
                        self._connection.execute("DELETE FROM jobs WHERE id = ?", (job.id,))

        await self._do(sweep)

    async def page(self, before: str | None, limit: int, status: str | None, model: str | None) -> list[Job]:
        """Return the newest jobs."""
        given = {"id < ?": before, "status = ?": status, "model = ?": model}
        wanted = {condition: value for condition, value in given.items() if value is not None}
        where = f"WHERE {' AND '.join(wanted)} " if wanted else ""
        query = f"SELECT job FROM jobs {where}ORDER BY id DESC LIMIT ?"  # noqa: S608  # conditions of our own
        return await self._do(lambda: self._jobs(query, *wanted.values(), limit))

    async def counts(self) -> Mapping[str, int]:
        """Return how many jobs have each status."""
        query = "SELECT status, count(*) FROM jobs GROUP BY status"
        return dict(await self._do(lambda: self._connection.execute(query).fetchall()))

    async def _payload(self, job_id: str, kind: str) -> bytes:
        row = await self._do(lambda: self._row("SELECT data FROM payloads WHERE id = ? AND kind = ?", job_id, kind))
        if row is None:
            raise no_such_job(job_id)
        return bytes(row[0])

    async def _do(self, step: Callable[[], Value]) -> Value:
        """Run a step on the thread; it is done whether or not its caller still waits."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, step))

    def _connect(self) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            # What callers sent is for nobody else's eyes; SQLite gives its other files the same mode.
            os.close(os.open(self._file, os.O_CREAT | os.O_RDWR, _MODE))
            self._connection = sqlite3.connect(self._file, isolation_level=None, timeout=_LOCKED_S)
            # The file is this server's alone: another would fail jobs of models that it does not have.
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            (version,) = self._row("PRAGMA user_version")
            if version == 0:
                self._connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        except sqlite3.OperationalError as error:
            raise ConfigurationError(
                f"The job store {self._file} cannot be opened: {error}. It is for one server; give another a file of "
                "its own (setting jobs.file), or jobs.store = 'memory'."
            ) from None
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"The job store {self._file} cannot be opened: {error}.") from None
        if version not in {0, _VERSION}:
            raise ConfigurationError(f"The job store {self._file} is of another release; expected form {_VERSION}.")

    def _close(self) -> None:
        self._connection.close()

    def _row(self, query: str, *values: Any) -> Any:
        return self._connection.execute(query, values).fetchone()

    def _jobs(self, query: str, *values: Any) -> list[Job]:
        return [_decoder.decode(row[0]) for row in self._connection.execute(query, values).fetchall()]

    def _job(self, job_id: str) -> Job:
        row = self._row("SELECT job FROM jobs WHERE id = ?", job_id)
        if row is None:
            raise no_such_job(job_id)
        return _decoder.decode(row[0])

    def _put(self, job: Job) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                job.id,
                job.model,
                job.status,
                job.priority,
                job.created_at,
                job.due_at,
                job.late_at,
                job.expires_at,
                job.key,
                _encoder.encode(job),
            ),
        )

    def _put_payload(self, job_id: str, kind: str, data: bytes) -> None:
        values = (job_id, kind, len(data), data)
        self._connection.execute("INSERT OR REPLACE INTO payloads VALUES (?, ?, ?, ?)", values)
