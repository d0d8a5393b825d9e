"""The worker process: `celery -A worker.app worker --pool=threads --concurrency=1`.

Celery's part is to wake it. The jobs are done in a thread of the runner: in numpy, or in a child process of our own
that can be watched and killed. No forked pool: its processes may not have children, and torch does not survive a fork.
"""

import logging
import threading
import time
import warnings
from typing import Any

from celery import signals

from contract import traces
from contract.log_lines import JsonLine
from service.config import load
from service.infra.celery_app import make_celery
from worker import tasks
from worker.ledger import opening
from worker.runner import Runner

# Containers run as root; who starts a worker by hand sees it in the process list.
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")

settings = load()
app = make_celery(settings)
_runner: Runner | None = None


class _LateRunner:
    """Stands in for the runner until the worker has started: importing this module must not touch the database."""

    def wake(self) -> None:
        if _runner is not None:
            _runner.wake()


tasks.register(app, _LateRunner())


@signals.after_setup_task_logger.connect  # type: ignore[untyped-decorator]
@signals.after_setup_logger.connect  # type: ignore[untyped-decorator]
def _as_the_api_does(logger: logging.Logger, **kwargs: Any) -> None:
    """Let the log tell UTC, and no less than the setting says, whatever the command line of Celery does."""
    logger.setLevel(settings.log_level.upper())
    for handler in logger.handlers:
        if settings.log_format == "json":
            handler.setFormatter(JsonLine())
        elif handler.formatter is not None:
            handler.formatter.converter = time.gmtime
            handler.formatter.default_msec_format = "%s.%03dZ"


@signals.worker_init.connect  # type: ignore[untyped-decorator]
def _init(**kwargs: Any) -> None:
    """Start the runner, which looks at the table at once: jobs may have waited for a worker.

    Celery logs what a signal's receiver raises, and goes on: a worker that hears wake-ups and does nothing. So whatever
    goes wrong here ends the process, and whoever watches it starts another one.

    Raises:
        SystemExit: it cannot begin.
    """
    global _runner
    traces.name_program("potstill-worker")
    _runner = Runner(opening.opened(settings))
    _runner.start()


@signals.worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _shutting_down(**kwargs: Any) -> None:
    """Do not wait for a long job: stop it, and let another worker take it up."""
    if _runner is not None:
        threading.Thread(target=_runner.stop, name="stop").start()


@signals.worker_shutdown.connect  # type: ignore[untyped-decorator]
def _shutdown(**kwargs: Any) -> None:
    if _runner is not None:
        _runner.close()
