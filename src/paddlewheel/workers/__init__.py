"""Worker processes: the loop in the child, the channel to it, the pool that keeps them alive."""

from paddlewheel.workers.child import Setup
from paddlewheel.workers.cores import available_cores, thread_counts
from paddlewheel.workers.model_state import ModelState
from paddlewheel.workers.pool import ProcessPool
from paddlewheel.workers.process import Ran, WorkerEndedError, WorkerProcess, fork_server

__all__ = [
    "ModelState",
    "ProcessPool",
    "Ran",
    "Setup",
    "WorkerEndedError",
    "WorkerProcess",
    "available_cores",
    "fork_server",
    "thread_counts",
]
