"""Which schema a database has, and whether this program may work on it: one judgement for every process and command.

Alembic, 10 MB of it, is loaded by what migrates and by nothing else: every process judges, once.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, inspect, text

from service.domain.errors import SchemaError

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["SchemaError", "columns_of", "config", "refuse_foreign", "refuse_other", "revision_of", "revisions"]

Columns = dict[str, set[str]]
"""A table -> its columns."""
SCRIPTS = files("migrations")
"""The folder of the revisions."""
_OWN = "alembic_version"
_NAMED = re.compile(r"""^(revision|down_revision)(?:: [^=]+)? = (?:["'](\w+)["']|None)$""", re.MULTILINE)


def config(connection: Connection | None = None, **attributes: Any) -> "Config":
    """Return Alembic's configuration; a connection is needed for whatever touches a database."""
    from alembic.config import Config

    made = Config()
    made.set_main_option("script_location", str(SCRIPTS))
    made.attributes.update(attributes, connection=connection)
    return made


def revisions() -> list[str]:
    """Return the revisions that this program knows, the oldest first, as the heads of their files name them."""
    after: dict[str, str] = {}
    for file in SCRIPTS.joinpath("versions").iterdir():
        if file.name.endswith(".py"):
            named = dict(_NAMED.findall(file.read_text(encoding="utf-8")))
            after[named["down_revision"]] = named["revision"]
    found = [after[""]]
    while found[-1] in after:
        found.append(after[found[-1]])
    return found


def revision_of(connection: Connection) -> str | None:
    """Return the revision that a database says it is at, None if it says nothing; the transaction goes on.

    Raises:
        SchemaError: it says several.
    """
    if not inspect(connection).has_table(_OWN):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {_OWN}")).scalars().all()
    if len(found) > 1:
        raise SchemaError(f"the database says that it is at {len(found)} schemas at once; restore a backup")
    return str(found[0]) if found else None


def columns_of(connection: Connection) -> Columns:
    """Return the tables of a database with their columns."""
    found = inspect(connection)
    return {
        name: {each["name"] for each in found.get_columns(name)} for name in found.get_table_names() if name != _OWN
    }


def refuse_foreign(current: str | None, columns: Mapping[str, set[str]]) -> None:
    """Refuse a database that this program cannot bring to its own schema: of a newer program, or of another one.

    Raises:
        SchemaError: with the remedy.
    """
    known = revisions()
    if current is None:
        if columns:
            raise SchemaError(
                f"the database has tables ({', '.join(sorted(columns)[:3])}, …) and does not say that they are "
                "potstill's: name an empty database, or restore a backup"
            )
    elif current not in known:
        raise SchemaError(
            f"this program is older than its data: the database is at schema {current}, and this program knows none "
            f"after {known[-1]}. Install the version of potstill that was here before, or restore a backup that this "
            "one can read into an empty folder"
        )


def refuse_other(current: str | None, columns: Mapping[str, set[str]]) -> None:
    """Refuse every schema but this program's own.

    Raises:
        SchemaError: with the remedy.
    """
    refuse_foreign(current, columns)
    head = revisions()[-1]
    if current is None:
        raise SchemaError(
            f"the database is empty: it is at schema none, this version needs {head}: run 'potstill migrate'"
        )
    if current != head:
        raise SchemaError(
            f"the data is older than this program: the database is at schema {current}, this version needs {head}: "
            "run 'potstill migrate' ('potstill up' does it by itself)"
        )
