"""Keeps revisions frozen, and data of each: `python -m tools.revisions` takes in new ones, and changes nothing else.

A revision that has landed is data of somebody's by now. `tests/migrations/frozen.txt` has its digest, a line each, and
`tests/migrations/data/` has rows as they were at it; the tests bring them to the newest schema.
"""

import hashlib
import json
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, Connection, DateTime, Engine, MetaData, Table, create_engine, insert, select

from service.config import Settings
from service.persistence import migrate, schema

ROOT = Path(__file__).parents[1]
VERSIONS = ROOT / "migrations" / "versions"
KEPT = ROOT / "tests" / "migrations"
FROZEN, DATA = KEPT / "frozen.txt", KEPT / "data"
MOMENT = "2026-01-02T03:04:05"
Rows = dict[str, list[dict[str, Any]]]


def files() -> dict[str, Path]:
    """Return revision -> file, the oldest first."""
    by_line = {}
    for path in VERSIONS.glob("*.py"):
        line = next(line for line in path.read_text().splitlines() if line.startswith("revision = "))
        by_line[line.split('"')[1]] = path
    return {revision: by_line[revision] for revision in schema.revisions()}


def line_of(revision: str, path: Path) -> str:
    """Return what `frozen.txt` says of a revision."""
    return f"{revision} {hashlib.sha256(path.read_bytes()).hexdigest()} {path.name}"


def faults() -> list[str]:
    """Return a sentence for each revision that is not kept as it landed."""
    kept = {line.split()[0]: line for line in FROZEN.read_text().splitlines()}
    said, found = [], files()
    for revision, path in found.items():
        line = line_of(revision, path)
        if revision not in kept:
            said.append(
                f"{path.name} is new: run `python -m tools.revisions`, which adds this line and its data: {line}"
            )
        elif kept[revision] != line:
            said.append(
                f"{path.name} was edited after it landed, and databases are at {revision}: put it back, and write what "
                f"is to change as a new revision. (If it never landed: take its line out of {FROZEN.name} and its file "
                "out of data/, and run `python -m tools.revisions`)"
            )
        elif not (DATA / f"{revision}.json").exists():
            said.append(f"data/{revision}.json is missing: run `python -m tools.revisions`")
    return said + [
        f"{kept[each].split()[2]} is gone, and databases are at {each}" for each in kept.keys() - found.keys()
    ]


def reflected(connection: Connection) -> dict[str, Table]:
    """Return the tables that are there, parents before children."""
    metadata = MetaData()
    metadata.reflect(connection)
    return {table.name: table for table in metadata.sorted_tables if table.name != "alembic_version"}


def _put(column: Any, value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(column.type, DateTime) and value is not None else value


def insert_rows(connection: Connection, rows: Rows) -> None:
    """Put rows into the tables that are there."""
    for name, table in reflected(connection).items():
        for row in rows.get(name, []):
            values = {column: _put(table.columns[column], value) for column, value in row.items()}
            connection.execute(insert(table).values(values))


def read_rows(connection: Connection) -> Rows:
    """Return all rows of all tables, as JSON has them."""
    found: Rows = {}
    for name, table in reflected(connection).items():
        order = list(table.primary_key.columns)
        rows = connection.execute(select(table).order_by(*order)).mappings()
        found[name] = [
            {str(key): value.isoformat() if isinstance(value, datetime) else value for key, value in row.items()}
            for row in rows
        ]
    return found


def fill(connection: Connection, before: Rows) -> None:
    """Give what is new in the tables a value: columns of the first row, and a row in each table that has none."""
    for name, table in reflected(connection).items():
        known = before.get(name)
        if not known:
            values = {column.name: _value(connection, column, name) for column in table.columns}
            connection.execute(insert(table).values(values))
            continue
        new = [column for column in table.columns if column.name not in known[0] and column.nullable]
        first = [column == _put(column, known[0][column.name]) for column in table.primary_key.columns]
        if new:
            values = {column.name: _value(connection, column, name) for column in new}
            connection.execute(table.update().where(*first).values(values))


def _value(connection: Connection, column: Any, table: str) -> Any:
    if column.foreign_keys:
        target = next(iter(column.foreign_keys)).column
        return connection.execute(select(target).order_by(target)).scalars().first()
    if isinstance(column.type, JSON):
        return {"a": [1, None, "ü"]}
    made = {str: f"{table} ü", int: 7, bool: True, float: 0.5, datetime: datetime.fromisoformat(MOMENT)}
    return made[column.type.python_type]


def data_in(revision: str) -> Rows:
    """Return the data that is kept of a revision."""
    found: Rows = json.loads((DATA / f"{revision}.json").read_text())
    return found


def data_of(revision: str, before: str) -> Rows:
    """Return the data of a revision: that of the one before, migrated, with a value for all that is new."""
    rows = data_in(before)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder), database_url=None)
        migrate.upgrade(settings, before)
        engine = create_engine(settings.resolved_database_url)
        with engine.begin() as connection:
            insert_rows(connection, rows)
        migrate.upgrade(settings, revision)
        made = _filled(engine, rows)
        engine.dispose()
    return made


def _filled(engine: Engine, before: Rows) -> Rows:
    with engine.begin() as connection:
        fill(connection, before)
        return read_rows(connection)


def write(rows: Rows, path: Path) -> None:
    """Keep rows, one a line, so that a difference can be read."""
    tables = [
        f'"{name}": [\n' + ",\n".join(json.dumps(row, ensure_ascii=False, sort_keys=True) for row in found) + "\n]"
        for name, found in sorted(rows.items())
    ]
    path.write_text("{\n" + ",\n".join(tables) + "\n}\n", encoding="utf-8")


def main() -> int:
    """Take in what is new; say what else is wrong."""
    found = files()
    order = list(found)
    kept = {line.split()[0]: line for line in FROZEN.read_text().splitlines()}
    for index, (revision, path) in enumerate(found.items()):
        if revision not in kept:
            kept[revision] = line_of(revision, path)
            print(kept[revision])
        if not (DATA / f"{revision}.json").exists():
            write(data_of(revision, order[index - 1]), DATA / f"{revision}.json")
            print(f"data/{revision}.json")
    FROZEN.write_text("".join(f"{kept[each]}\n" for each in [*order, *(kept.keys() - found.keys())]))
    for fault in (wrong := faults()):
        print(fault, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
