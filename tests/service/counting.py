"""A store that tells how many sessions were opened."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from service.operations.ledger.unit import Store
from tests.service.world import World


class CountingStore(Store):
    """A store that counts its sessions, and may be away."""

    def __init__(self, world: World):
        super().__init__(world.services.database, world.blobs.store)
        self.sessions: Counter[str] = Counter()
        self.away = False

    @contextmanager
    def read(self) -> Iterator[Session]:
        self.sessions["read"] += 1
        if self.away:
            raise ConnectionError("the database is away")
        with super().read() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        self.sessions["write"] += 1
        with super().write() as session:
            yield session
