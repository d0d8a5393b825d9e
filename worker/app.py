"""The worker process: `celery -A worker.app worker --pool=threads --concurrency=1`.

Celery's part is to wake it. The jobs are done in a thread of the runner: in numpy, or in a child process of our own
that can be watched and killed. No forked pool: its processes may not have children, and torch does not survive a fork.
"""

import logging
import os
import threading
import time
import warnings
from typing import Any

from celery import signals
from sqlalchemy.exc import OperationalError

from contract.private import UMASK, OpenToOthers
from service.config import load, unread
from service.domain.errors import StartError
from service.infra.queue import make_celery
from service.persistence import migrate
from service.persistence.engine import refuses_options, why_closed
from worker import tasks
from worker.ledger import Ledger
from worker.runner import Runner

# Containers run as root; who starts a worker by hand sees it in the process list.
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")

log = logging.getLogger("worker.app")
_PATIENCE_SECONDS = 60.0
settings = load()
app = make_celery(settings)
_runner: Runner | None = None


class _LateRunner:
    """Stands in for the runner until the worker has started: importing this module must not touch the database."""

    def wake(self) -> None:
        if _runner is not None:
            _runner.wake()


tasks.register(app, _LateRunner())


@signals.after_setup_logger.connect  # type: ignore[untyped-decorator]
def _as_the_api_does(logger: logging.Logger, **kwargs: Any) -> None:
    """Let the log tell UTC, and no less than the setting says, whatever the command line of Celery does."""
    logger.setLevel(settings.log_level.upper())
    for handler in logger.handlers:
        if handler.formatter is not None:
            handler.formatter.converter = time.gmtime
            handler.formatter.default_msec_format = "%s.%03dZ"


@signals.worker_init.connect  # type: ignore[untyped-decorator]
def _init(**kwargs: Any) -> None:
    """Start the runner, which looks at the table at once: jobs may have waited for a worker.

    Celery logs what a signal's receiver raises, and goes on: a worker that hears wake-ups and does nothing. So whatever
    goes wrong here ends the process, and whoever watches it starts another one.
    """
    global _runner
    os.umask(UMASK)  # what a library writes is for nobody else either
    logging.getLogger("worker").setLevel(settings.log_level.upper())
    for sentence in unread(os.environ):
        log.warning(sentence)
    try:
        _await_database()
        _runner = Runner(Ledger(settings))
        _runner.start()
    except Exception as error:
        why = why_closed(error)
        known = isinstance(error, OperationalError | OpenToOthers | StartError) or why is not None
        log.critical("this worker cannot begin: %s", why or error, exc_info=not known)
        raise SystemExit(1) from error


def _await_database() -> None:
    """Wait for a database that is only just starting, and see that its schema is ours."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            migrate.check(settings)
            return
        except OperationalError as error:
            if time.monotonic() > end or refuses_options(error):
                raise
            log.warning("the database does not answer yet: %s", str(error).splitlines()[0])
            time.sleep(1)


@signals.worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _shutting_down(**kwargs: Any) -> None:
    """Do not wait for a long job: stop it, and let another worker take it up."""
    if _runner is not None:
        threading.Thread(target=_runner.stop, name="stop").start()


@signals.worker_shutdown.connect  # type: ignore[untyped-decorator]
def _shutdown(**kwargs: Any) -> None:
    if _runner is not None:
        _runner.close()
