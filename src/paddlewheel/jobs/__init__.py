"""Asynchronous calls: the states of a job, the stores that keep it, the runner that executes it."""

from paddlewheel.jobs.job import Job, Status
from paddlewheel.jobs.memory import MemoryJobStore
from paddlewheel.jobs.runner import JobRunner
from paddlewheel.jobs.sqlite import SqliteJobStore
from paddlewheel.jobs.store import JobStore

__all__ = ["Job", "JobRunner", "JobStore", "MemoryJobStore", "SqliteJobStore", "Status"]
