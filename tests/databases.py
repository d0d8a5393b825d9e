"""PostgreSQL databases of the tests' own. Each name says when it was made, so that the next run drops what a killed run
left behind.

POSTGRES is where they are made; its own database is only connected to.
"""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

POSTGRES = os.environ.get("POTSTILL_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
STALE_SECONDS = 3600
_NAME = re.compile(r"potstill_([0-9]{10})_[0-9a-f]{8}")


class Databases:
    """Makes databases and drops them."""

    def __init__(self) -> None:
        self._link = psycopg.connect(POSTGRES, autocommit=True, connect_timeout=3)
        self._made: list[str] = []

    def create(self, template: str = "template1") -> str:
        """Return the name of a new database, a copy of a template that nobody is connected to."""
        name = f"potstill_{int(time.time())}_{secrets.token_hex(4)}"
        self._link.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        self._made.append(name)
        return name

    @staticmethod
    def url(name: str) -> str:
        """Return a database's address as the service takes it."""
        return f"postgresql+psycopg://{POSTGRES.partition('://')[2].rpartition('/')[0]}/{name}"

    def drop_stale(self) -> None:
        """Drop what runs that were killed left, and nobody uses."""
        used = "SELECT datid FROM pg_stat_activity WHERE datid IS NOT NULL"
        found = self._link.execute(f"SELECT datname FROM pg_database WHERE oid NOT IN ({used})").fetchall()
        for (name,) in found:
            made = _NAME.fullmatch(name)
            if made and int(made[1]) < time.time() - STALE_SECONDS:
                with contextlib.suppress(psycopg.Error):  # another run was faster
                    self._link.execute(f"DROP DATABASE IF EXISTS {name}")

    def close(self) -> None:
        """Drop everything and hang up."""
        for name in self._made:
            self._link.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._link.close()


@contextmanager
def databases() -> Iterator[Databases]:
    """Have databases for the length of a block; without a server the test is skipped, or fails in a distributed run."""
    try:
        made = Databases()
    except psycopg.OperationalError as error:
        if "POTSTILL_TEST_DISTRIBUTED" in os.environ:
            raise
        pytest.skip(f"NOT TESTED ON POSTGRESQL: {POSTGRES} does not answer ({str(error).splitlines()[0]})")
    try:
        made.drop_stale()
        yield made
    finally:
        made.close()
