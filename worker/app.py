"""The worker process: `celery -A worker.app worker --pool=threads --concurrency=1`.

Celery's part is to wake it. Threads, because the work is done either in numpy, which lets other threads run, or in a
child process of our own that can be killed, which a forked pool process may not even start.
"""

import logging
import threading
from typing import Any

from celery import signals

from service.config import load
from service.infra.queue import make_celery
from service.persistence import migrate
from worker import tasks
from worker.ledger import Ledger
from worker.runner import Runner

settings = load()
app = make_celery(settings)
_runner: Runner | None = None


class _LateRunner:
    """Stands in for the runner until the worker has started: importing this module must not touch the database."""

    def drain(self) -> int:
        return _runner.drain() if _runner is not None else 0


tasks.register(app, _LateRunner())


@signals.worker_init.connect  # type: ignore[untyped-decorator]
def _init(**kwargs: Any) -> None:
    global _runner
    logging.getLogger("worker").setLevel(settings.log_level.upper())
    migrate.check(settings)
    _runner = Runner(Ledger(settings))
    _runner.start()


@signals.worker_ready.connect  # type: ignore[untyped-decorator]
def _ready(**kwargs: Any) -> None:
    """Look at the table at once: jobs may have waited for a worker."""
    if _runner is not None:
        threading.Thread(target=_runner.drain, name="first-look", daemon=True).start()


@signals.worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _shutting_down(**kwargs: Any) -> None:
    """Do not wait for a long job: stop it, and let another worker take it up."""
    if _runner is not None:
        threading.Thread(target=_runner.stop, name="stop").start()


@signals.worker_shutdown.connect  # type: ignore[untyped-decorator]
def _shutdown(**kwargs: Any) -> None:
    if _runner is not None:
        _runner.close()
