"""Where requests wait and how they are put together for an idle worker."""

from paddlewheel.batching.request_queue import QueuedRequest, RequestQueue
from paddlewheel.batching.scheduler import Scheduler
from paddlewheel.batching.served_version import ServedVersion
from paddlewheel.batching.statistics import Duration, VersionStatistics

__all__ = ["Duration", "QueuedRequest", "RequestQueue", "Scheduler", "ServedVersion", "VersionStatistics"]
