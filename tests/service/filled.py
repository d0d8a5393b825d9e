"""PostgreSQL databases with tables, when tests run distributed."""

import psycopg

from service.config import Settings
from service.persistence import migrate
from service.persistence.tables import Base
from tests.databases import Databases


class Filled:
    """Databases with tables, copies of a template, when tests run distributed. They are used again, emptied: to drop
    one takes PostgreSQL a checkpoint.
    """

    def __init__(self, databases: Databases):
        self._databases, self._template = databases, databases.create()
        migrate.upgrade(Settings(database_url=databases.url(self._template)))
        self._used: list[str] = []
        self._free: list[str] = []

    def take(self) -> str:
        """Return the address of an empty one."""
        if self._free:
            name = self._free.pop()
            self._empty(name)
        else:
            name = self._databases.create(self._template)
        self._used.append(name)
        return self._databases.url(name)

    def _empty(self, name: str) -> None:
        with psycopg.connect(self._databases.url(name).replace("+psycopg", ""), autocommit=True) as link:
            link.execute("SET session_replication_role = replica")  # rows go in any order
            link.execute(";".join(f"DELETE FROM {table.name}" for table in Base.metadata.sorted_tables))
            link.execute("SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S'")

    def give_back(self, url: str) -> None:
        """Have one used again."""
        name = url.rpartition("/")[2]
        if name in self._used:
            self._used.remove(name)
            self._free.append(name)

    def give_all_back(self) -> None:
        """Have all used again."""
        self._free += self._used
        self._used.clear()
