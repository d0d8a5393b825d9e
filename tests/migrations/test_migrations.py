"""Up and down, empty and filled, on SQLite and PostgreSQL; several processes at once; the models say the same."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, select, text

from service.config import Settings
from service.persistence import migrate, schema
from service.persistence.tables import Base, UtcDateTime
from tests.databases import databases

ROOT = Path(__file__).parents[2]
TABLES = {table.name for table in Base.metadata.sorted_tables}
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Settings of an empty database."""
    if request.param == "sqlite":
        yield Settings(home=tmp_path, database_url=None)
        return
    with databases() as made:
        yield Settings(home=tmp_path, database_url=made.url(made.create()))


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    made = create_engine(settings.resolved_database_url)
    yield made
    made.dispose()


def tables(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names()) - {"alembic_version"}


def fill(engine: Engine) -> dict[str, list[Any]]:
    """Put a row into every table; return what is there."""
    ids: dict[str, str] = {table.name: f"{table.name}_1" for table in Base.metadata.sorted_tables}
    with engine.begin() as connection:
        for table in Base.metadata.sorted_tables:
            row: dict[str, Any] = {}
            for column in table.columns:
                if column.foreign_keys:
                    row[column.name] = ids[next(iter(column.foreign_keys)).column.table.name]
                elif column.name == "id":
                    row[column.name] = ids[table.name]
                else:
                    kind = datetime if isinstance(column.type, UtcDateTime) else column.type.python_type
                    made = {str: f"ü {column.name}", int: 2**40, bool: True, float: 0.5, datetime: MOMENT}
                    row[column.name] = made.get(kind, {"a": [1, None]})
            connection.execute(table.insert().values(row))
    return contents(engine)


def contents(engine: Engine) -> dict[str, list[Any]]:
    with engine.connect() as connection:
        return {t.name: [tuple(r) for r in connection.execute(select(t))] for t in Base.metadata.sorted_tables}


def test_up_down_and_up_again(settings: Settings, engine: Engine) -> None:
    before, head = migrate.upgrade(settings)
    assert (before, tables(engine)) == (None, TABLES)
    assert migrate.upgrade(settings) == (head, head), "again does nothing"
    migrate.downgrade(settings, "base")
    assert tables(engine) == set()
    migrate.upgrade(settings)
    assert tables(engine) == TABLES


def test_a_filled_database_survives_an_upgrade_and_can_be_taken_down(settings: Settings, engine: Engine) -> None:
    migrate.upgrade(settings)
    before = fill(engine)
    assert all(len(rows) == 1 for rows in before.values())
    migrate.upgrade(settings)
    assert contents(engine) == before
    migrate.downgrade(settings, "base")
    assert tables(engine) == set()


def test_each_step_goes_up_and_down_with_rows_in_the_tables(settings: Settings, engine: Engine) -> None:
    script = ScriptDirectory.from_config(schema.config())
    revisions = [revision.revision for revision in reversed(list(script.walk_revisions()))]
    assert len(script.get_heads()) == 1
    assert schema.revisions() == revisions
    for revision in revisions:
        migrate.upgrade(settings, revision)
    before = fill(engine)
    if len(revisions) > 1:
        migrate.downgrade(settings, "-1")
        migrate.upgrade(settings)
    assert contents(engine).keys() == before.keys()
    for _ in revisions:
        migrate.downgrade(settings, "-1")
    assert tables(engine) == set()


def test_documents_of_provenance_and_who_names_them_survive_their_new_name(settings: Settings, engine: Engine) -> None:
    moved = ("provenance", "models", "discriminators", "current_models")
    migrate.upgrade(settings)
    before = fill(engine)
    migrate.downgrade(settings, "0009")
    with engine.connect() as connection:
        for table in ("models", "discriminators"):
            assert connection.execute(text(f"SELECT manifest_id FROM {table}")).scalars().all() == ["provenance_1"]
        assert connection.execute(text("SELECT id, job_id FROM manifests")).all() == [("provenance_1", "jobs_1")]
    migrate.upgrade(settings)
    after = contents(engine)
    assert {name: after[name] for name in moved} == {name: before[name] for name in moved}
    for table in ("models", "discriminators"):
        keys = {key["referred_table"]: key["constrained_columns"] for key in inspect(engine).get_foreign_keys(table)}
        assert keys["provenance"] == ["provenance_id"]
    if settings.is_sqlite:
        with engine.connect() as connection:
            assert connection.execute(text("PRAGMA foreign_key_check")).all() == []


def test_the_models_and_the_migrations_say_the_same(settings: Settings, engine: Engine) -> None:
    migrate.upgrade(settings)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        command.check(schema.config(connection))


def test_names_are_unique_among_clients_that_are_not_revoked(settings: Settings, engine: Engine) -> None:
    migrate.upgrade(settings)
    index = next(i for i in inspect(engine).get_indexes("clients") if i["name"] == "uq_clients_live_name")
    assert index["unique"]
    assert index["column_names"] == ["federation_id", "name"]
    assert any("where" in key for key in index["dialect_options"])


def test_a_service_refuses_another_schema_and_says_what_to_do(settings: Settings, engine: Engine) -> None:
    with pytest.raises(migrate.SchemaError, match="potstill migrate"):
        migrate.check(settings)
    migrate.upgrade(settings)
    migrate.check(settings)
    migrate.downgrade(settings, "base")
    with pytest.raises(migrate.SchemaError, match="at schema none"):
        migrate.check(settings)


def test_four_processes_that_upgrade_at_once(settings: Settings, engine: Engine) -> None:
    program = "from service.config import load; from service.persistence import migrate; migrate.upgrade(load())"
    variables = {"POTSTILL_HOME": str(settings.home)}
    if settings.database_url is not None:
        variables["POTSTILL_DATABASE_URL"] = settings.database_url
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(4)
    ]
    said = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4, said
    assert tables(engine) == TABLES
    migrate.check(settings)
