"""The Celery task: a shell around the runner. The message says only 'look at the jobs table'."""

from typing import Protocol

from celery import Celery

from contract.queue import TASK_WORK


class Drains(Protocol):
    """Whatever does the jobs."""

    def drain(self) -> int:
        """Do jobs until none is due; return how many."""
        ...


def register(app: Celery, runner: Drains) -> None:
    """Add the one task to a Celery application."""

    @app.task(name=TASK_WORK, ignore_result=True)  # type: ignore[untyped-decorator]
    def work() -> int:
        """Do jobs until none is due."""
        return runner.drain()
