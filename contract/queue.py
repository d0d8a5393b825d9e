"""Names of queues and jobs, and the one message there is. A message carries nothing: it says 'look at the jobs table'.

A queue is a capability: jobs that run networks wait in `gpu`, the others in `cpu`. Each has a Celery queue of its own.
"""

from typing import Literal

Queue = Literal["cpu", "gpu"]
JobName = Literal["initialize", "generator", "score", "round", "labels", "predict"]
QUEUES: tuple[Queue, ...] = ("cpu", "gpu")
QUEUE = "potstill"
TASK_WORK = "potstill.work"


def celery_queue(queue: str) -> str:
    """Return the name of the Celery queue whose messages wake the workers of a queue."""
    return f"{QUEUE}.{queue}"
