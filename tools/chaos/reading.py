"""Reads of an installation's database, past its API."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from service.persistence.engine import Database
from tools.deployment import Deployment


@contextmanager
def reading(deployment: Deployment) -> Iterator[Session]:
    """A session of the installation's database."""
    database = Database(deployment.settings)
    try:
        with database.read() as session:
            yield session
    finally:
        database.close()
