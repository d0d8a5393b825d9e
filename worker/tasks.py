"""The Celery task: a shell around the runner. The message says only 'look at the jobs table'."""

from typing import Protocol

from celery import Celery

from contract.queue import TASK_WORK


class Wakes(Protocol):
    """Whatever does the jobs."""

    def wake(self) -> None:
        """Look at the jobs table now; returns at once."""
        ...


def register(app: Celery, runner: Wakes) -> None:
    """Add the one task to a Celery application, and to no other one of this process: each has its own runner."""

    @app.task(name=TASK_WORK, ignore_result=True, shared=False)  # type: ignore[untyped-decorator]
    def work() -> None:
        """Have the runner look at the jobs table."""
        runner.wake()
