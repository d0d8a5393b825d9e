"""Revisions stay as they landed, and data of every schema that ever was comes to the newest one, on both databases."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, Table, UniqueConstraint, create_engine, select, text
from sqlalchemy.exc import DBAPIError

from service.config import Settings
from service.infra import tokens
from service.operations.access.tokens import authenticate
from service.persistence import migrate, schema
from service.persistence.engine import Database
from service.persistence.tables import Base
from tests.databases import databases
from tools import revisions
from tools.revisions import DATA, Rows

FORMS = DATA / "first_forms"
RENAMED_TABLES = {"manifests": "provenance"}
RENAMED_COLUMNS = {"manifest_id": "provenance_id"}
"""What later revisions renamed; one that drops something adds it to `DROPPED`."""
DROPPED: set[str] = set()


def read(path: Path) -> Rows:
    found: Rows = json.loads(path.read_text())
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    if request.param == "sqlite":
        yield Settings(home=tmp_path, database_url=None)
        return
    with databases() as made:
        yield Settings(home=tmp_path, database_url=made.url(made.create()))


@contextmanager
def opened(settings: Settings) -> Iterator[Engine]:
    engine = create_engine(settings.resolved_database_url)
    yield engine
    engine.dispose()


def first_form(settings: Settings, form: str) -> Rows:
    """Make a database as an early form of the first revision did; return its rows."""
    rows = read(FORMS / f"{form}.json")
    dialect = "sqlite" if settings.is_sqlite else "postgresql"
    with opened(settings) as engine, engine.begin() as connection:
        for statement in (FORMS / f"{form}.{dialect}.sql").read_text().split(";\n"):
            if statement.strip():
                connection.execute(text(statement))
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('0001')"))
        revisions.insert_rows(connection, rows)
    return rows


def _named(table: Table) -> set[str]:
    """Return the columns in which two sets of rows must differ."""
    unique = [each.columns for each in table.constraints if isinstance(each, UniqueConstraint)]
    unique += [each.columns for each in table.indexes if each.unique]
    found = {column.name for columns in unique for column in columns}
    return found | {column.name for column in table.columns if column.primary_key or column.foreign_keys}


def apart(rows: Rows, tables: dict[str, Table], number: int) -> Rows:
    """Return rows with names and keys of their own, so that those of several schemas fit into one database."""

    def other(table: Table, name: str, value: Any) -> Any:
        if name not in _named(table):
            return value
        if isinstance(value, str):
            return f"{number}-{value}"
        return value + 1000 * number if table.columns[name].primary_key else value

    return {
        name: [{column: other(tables[name], column, value) for column, value in row.items()} for row in found]
        for name, found in rows.items()
    }


def there(engine: Engine, rows: Rows) -> None:
    """Hold the newest schema's rows against those that were put in: none is lost, and none has another value."""
    with engine.connect() as connection:
        now = revisions.read_rows(connection)
        for name, before in rows.items():
            table = Base.metadata.tables[RENAMED_TABLES.get(name, name)]
            keys = [column.name for column in table.primary_key.columns]
            found = {tuple(row[key] for key in keys): row for row in now[table.name]}
            for row in before:
                kept = {RENAMED_COLUMNS.get(key, key): value for key, value in row.items()}
                after = found[tuple(kept[key] for key in keys)]
                told = {key: value for key, value in kept.items() if f"{table.name}.{key}" not in DROPPED}
                assert {key: after[key] for key in told} == told, (name, row)


def right(engine: Engine, sqlite: bool) -> None:
    """See that the schema is what the tables say, whatever it was made from."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        if sqlite:
            assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
            assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"


def test_landed_revisions_are_as_they_landed() -> None:
    assert revisions.faults() == []


def test_one_that_was_edited_or_is_new_or_gone_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = revisions.FROZEN.read_text().splitlines()
    kept = [lines[0].replace(lines[0].split()[1], "0" * 64), *lines[1:-1], "0099 " + "0" * 64 + " gone.py"]
    (tmp_path / "frozen.txt").write_text("\n".join(kept) + "\n")
    monkeypatch.setattr(revisions, "FROZEN", tmp_path / "frozen.txt")
    edited, new, gone = revisions.faults()
    assert edited.startswith("20261128_first_schema.py was edited after it landed")
    assert lines[-1] in new
    assert "python -m tools.revisions" in new
    assert gone == "gone.py is gone, and databases are at 0099"


def test_data_of_every_revision_comes_to_the_newest_one(settings: Settings) -> None:
    put: list[Rows] = []
    with opened(settings) as engine:
        for number, revision in enumerate(schema.revisions()):
            migrate.upgrade(settings, revision)
            with engine.begin() as connection:
                tables = revisions.reflected(connection)
                put.append(apart(read(DATA / f"{revision}.json"), tables, number))
                revisions.insert_rows(connection, put[-1])
        for rows in put:
            there(engine, rows)
        right(engine, settings.is_sqlite)
    migrate.check(settings)


@pytest.mark.parametrize("form", ["a", "b", "c"])
def test_data_of_the_first_revisions_early_forms_come_to_the_newest_one(settings: Settings, form: str) -> None:
    rows = first_form(settings, form)
    assert migrate.upgrade(settings) == ("0001", schema.revisions()[-1])
    with opened(settings) as engine:
        there(engine, rows)
        right(engine, settings.is_sqlite)
        with engine.connect() as connection:
            asked = connection.execute(text("SELECT DISTINCT prototype FROM participants")).scalars().all()
            assert asked == ["main"]
            if form == "a":  # what tokens were made with before there were nonces
                assert set(connection.execute(text("SELECT nonce FROM clients")).scalars()) == {"1"}


def test_a_device_of_the_first_form_keeps_its_token(settings: Settings) -> None:
    first_form(settings, "a")
    key = b"the key of the installation"
    token = tokens.derive(key, "device", "cli_1", "1")
    with opened(settings) as engine, engine.begin() as connection:
        hashed = tokens.hash_token(key, token)
        connection.execute(text("UPDATE clients SET token_hash = :hashed WHERE id = 'cli_1'"), {"hashed": hashed})
    migrate.upgrade(settings)
    database = Database(settings)
    with database.read() as session:
        assert authenticate(session, (key,), token).id == "cli_1"
    database.close()


def test_a_database_that_an_earlier_migration_left_between_two_schemas_is_brought_up(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=None)
    rows = first_form(settings, "a")
    with opened(settings) as engine, engine.connect() as connection:  # as it was done: each statement by itself
        raw: Any = connection.connection.dbapi_connection
        raw.isolation_level = None
        with pytest.raises(DBAPIError, match="gan_updates"):
            command.upgrade(schema.config(connection), "head")
        connection.rollback()
    with opened(settings) as engine, engine.connect() as connection:
        found = schema.columns_of(connection)
        assert ("manifests" in found, schema.revision_of(connection)) == (True, "0005")
    migrate.upgrade(settings)
    with opened(settings) as engine:
        there(engine, rows)
        right(engine, sqlite=True)


def test_moments_and_large_numbers_are_what_they_were(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=None)
    first_form(settings, "a")
    migrate.upgrade(settings)
    federations = Base.metadata.tables["federations"]
    with opened(settings) as engine, engine.connect() as connection:
        row = connection.execute(select(federations).where(federations.c.id == "fed_1")).mappings().one()
    assert (row["seed"], row["version"], row["name"]) == (2**62, 2**33, "läuft")
    assert row["started_at"] == datetime.fromisoformat("2026-01-02T03:05:05.123456+00:00")
