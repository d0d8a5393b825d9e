"""One unit of work: a write transaction and, after its commit, what it noted to be done then."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from service.domain.errors import DomainError
from service.infra.blobs import BlobStore
from service.infra.parts import Parts
from service.operations.ledger import after_commit, audit, events, locks, naming, row_events
from service.operations.ledger.garbage import remove_unnamed
from service.persistence import watch
from service.persistence.engine import Database

log = logging.getLogger("service.unit")


class Store:
    """Database and blobs together.

    Args:
        parts: bytes of resumable uploads; a worker, which has none, leaves it out.
        wake: called after a commit that added work, with the queues that have it.
        changed: called after a commit that waiting devices may care about.
        told: called after a commit that has added events.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        wake: Callable[[set[str]], None] = lambda queues: None,
        changed: Callable[[], None] = lambda: None,
        parts: Parts | None = None,
        told: Callable[[], None] = lambda: None,
    ):
        self.database, self.blobs, self.parts = database, blobs, parts
        self._wake, self._changed, self._told = wake, changed, told

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction with the events that tell of it; what it noted for after the commit is done then.

        A crash in between loses none that matters: a lost wake-up is sent again by the sweep, a change is seen by the
        next poll, and a blob that was not removed takes up space until the next collection (`garbage.collect`).
        """
        with self.database.write() as session:
            row_events.watch(session)
            yield session
            naming.settle(session, self.blobs)
            told = events.append(session)
            audit.write(session)
            if session.info.get(after_commit.CHANGED):
                watch.announce(session)
        if told:
            self._told()
        if session.info.get(after_commit.WAKE):
            self._wake(session.info[after_commit.WAKE])
        if session.info.get(after_commit.CHANGED):
            self._changed()
        if self.parts is not None:
            for upload in session.info.get(after_commit.DROPPED, ()):
                self.parts.remove(upload)
        released = session.info.get(after_commit.RELEASED)
        if released:
            self._remove(released)

    def _remove(self, released: set[str]) -> None:
        try:
            with self.database.write() as session:
                locks.lock_blobs(session)
                remove_unnamed(session, self.blobs, released)
        except DomainError as error:  # the store is away, but what was committed stands
            log.warning("%d blobs stay until the next collection: %s", len(released), error.detail)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that only reads."""
        with self.database.read() as session:
            yield session
