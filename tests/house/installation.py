"""An installation without a service, for commands that work on files."""

from pathlib import Path

import numpy as np

from contract.ids import new_id
from contract.tensors import write_file
from service.config import Settings
from service.infra.blob_folder import open_folder
from service.infra.sums import sums_of
from service.operations.ledger import after_commit
from service.operations.ledger.clock import now
from service.operations.ledger.unit import Store
from service.persistence import migrate
from service.persistence.engine import Database
from service.persistence.tables import ModelRow


class House:
    """An installation without a service: a database, blobs, and models in them."""

    def __init__(self, home: Path):
        self.home = home
        self.settings = Settings(home=home, database_url=None, blob_dir=None)
        migrate.upgrade(self.settings)
        self.database = Database(self.settings)
        self.blobs = open_folder(self.settings.resolved_blob_dir)
        self.store = Store(self.database, self.blobs.store)

    def model(self, seed: int, size: int = 100) -> str:
        """Add a model; return its digest."""
        path = self.blobs.scratch.temp()
        write_file(path, {"w": np.full(size, seed, np.float32)})
        sums = sums_of(path)
        digest, length = sums.digest, sums.size
        with self.store.write() as session:
            self.blobs.store.keep(path, digest)
            session.add(
                ModelRow(
                    id=new_id("model"), role="imported", digest=digest, size=length, options={}, parents=[],
                    metrics={}, created_at=now(),
                )
            )  # fmt: skip
        return digest

    def drop(self, digest: str) -> None:
        """Remove a model and let go of its blob."""
        with self.store.write() as session:
            session.query(ModelRow).filter(ModelRow.digest == digest).delete()
            after_commit.release_blobs(session, {digest})

    def path(self, digest: str) -> Path:
        return self.blobs.cache.path(digest)
