"""How a worker comes to its ledger, and hears of jobs where no broker is: the same for every program that is one."""

import logging
import os
import time

from sqlalchemy.exc import OperationalError

from contract.private import UMASK, OpenToOthers
from contract.queue import celery_queue
from service.config import Settings, load, unread
from service.domain.errors import StartError
from service.infra.bells import Bells
from service.infra.changes import POLL_SECONDS
from service.infra.folder_queue import FolderQueue
from service.persistence import migrate
from service.persistence.engine import refuses_options, why_closed
from worker.ledger import Ledger

__all__ = ["Hints", "load", "opened"]
log = logging.getLogger("worker.app")
_PATIENCE_SECONDS = 60.0


def opened(settings: Settings) -> Ledger:
    """Return the ledger, once the database answers.

    Raises:
        SystemExit: this worker cannot begin; the log says why. Whoever watches it starts another one.
    """
    os.umask(UMASK)  # what a library writes is for nobody else either
    logging.getLogger("worker").setLevel(settings.log_level.upper())
    for sentence in unread(os.environ):
        log.warning(sentence)
    try:
        _await_database(settings)
        return Ledger(settings)
    except Exception as error:
        why = why_closed(error)
        known = isinstance(error, OperationalError | OpenToOthers | StartError) or why is not None
        log.critical("this worker cannot begin: %s", why or error, exc_info=not known)
        raise SystemExit(1) from error


def _await_database(settings: Settings) -> None:
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


class Hints:
    """Messages of an embedded installation's queue folder: each says 'look at the jobs table', and no more."""

    def __init__(self, settings: Settings):
        self._folder = FolderQueue(settings.queue_dir / "messages")
        self._queues = [celery_queue(queue) for queue in settings.queue_list]
        self._bells = Bells()

    def come(self) -> bool:
        """Wait a little; return whether any has come, and take them all."""
        found = False
        try:
            self._bells.hang([self._folder.bell(queue) for queue in self._queues])
            for _ in range(2):
                for queue in self._queues:
                    found = self._folder.clear(queue) or found
                if found or not self._bells.wait(POLL_SECONDS):
                    break
        except Exception:
            log.exception("cannot look into the queue folder; jobs are still looked for now and then")
            time.sleep(1)
        return found

    def close(self) -> None:
        """Let go of the bells."""
        self._bells.close()
