"""Where requests wait and how they are put together for an idle worker."""

from paddlewheel.batching.buckets import bucket_of
from paddlewheel.batching.request_queue import QueuedRequest, RequestQueue
from paddlewheel.batching.scheduler import Scheduler, ServedModel

__all__ = ["QueuedRequest", "RequestQueue", "Scheduler", "ServedModel", "bucket_of"]
