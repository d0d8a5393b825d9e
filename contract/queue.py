"""Celery names and the one message there is. A message carries nothing: it says 'look at the jobs table'."""

QUEUE = "potstill"
TASK_WORK = "potstill.work"
