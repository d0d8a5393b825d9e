"""A migration that fails or is killed leaves the database as it was, and says what to do."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from service.config import Settings
from service.persistence import migrate, safety, schema
from service.persistence.schema import SchemaError
from tests.databases import databases
from tools import revisions

ROOT = Path(__file__).parents[2]
LAST = schema.revisions()[-1]
STEP = '''
"""a step that goes wrong"""
import os
import sqlalchemy as sa
from alembic import op
revision = "9999"
down_revision = "{last}"
def upgrade():
    op.create_table("half_done", sa.Column("id", sa.BigInteger(), primary_key=True))
    op.execute("DELETE FROM workers")
    op.execute("UPDATE federations SET name = id")
    {then}
def downgrade():
    pass
'''


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Settings of a database with data at the newest schema."""
    if request.param == "sqlite":
        made = Settings(home=tmp_path / "home", database_url=None)
        filled(made)
        yield made
        return
    with databases() as server:
        made = Settings(home=tmp_path / "home", database_url=server.url(server.create()))
        filled(made)
        yield made


@pytest.fixture
def embedded(tmp_path: Path) -> Settings:
    made = Settings(home=tmp_path / "home", database_url=None)
    filled(made)
    return made


def filled(settings: Settings) -> None:
    migrate.upgrade(settings)
    engine = create_engine(settings.resolved_database_url)
    with engine.begin() as connection:
        revisions.insert_rows(connection, revisions.data_in(LAST))
    engine.dispose()


def content(settings: Settings) -> tuple[str | None, Any]:
    """Return everything that is in a database."""
    engine = create_engine(settings.resolved_database_url)
    with engine.connect() as connection:
        found = schema.revision_of(connection), revisions.read_rows(connection)
    engine.dispose()
    return found


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that adds a revision which ends so."""

    def add(then: str) -> Path:
        place = tmp_path / "migrations"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(ROOT / "migrations", place, ignore=shutil.ignore_patterns("__pycache__"))
        (place / "versions" / "bad.py").write_text(STEP.format(last=LAST, then=then))
        monkeypatch.setattr(schema, "SCRIPTS", place)
        return place

    return add


@pytest.mark.parametrize(
    "then", ['raise RuntimeError("the disk is full")', 'op.execute("SELECT nothing FROM nowhere")']
)
def test_a_step_that_fails_changes_nothing(settings: Settings, step: Any, then: str) -> None:
    before = content(settings)
    step(then)
    with pytest.raises(SchemaError, match=f"failed at its first step: .*Nothing was changed.*{LAST}.*report") as error:
        migrate.upgrade(settings)
    assert "\n" not in str(error.value)
    assert content(settings) == before
    assert sorted(settings.home.glob("*before-migration*")) == []


def test_rows_that_would_name_nothing_are_found_before_the_commit(embedded: Settings, step: Any) -> None:
    before = content(embedded)
    step("""op.execute("DELETE FROM clients WHERE id = 'cli_1'")""")
    with pytest.raises(SchemaError, match="foreign keys would point nowhere"):
        migrate.upgrade(embedded)
    assert content(embedded) == before


def test_a_step_that_commits_by_itself_is_put_back_from_the_copy(embedded: Settings, step: Any) -> None:
    before = content(embedded)
    step('op.get_bind().exec_driver_sql("COMMIT"); raise RuntimeError("late")')
    with pytest.raises(SchemaError, match="Nothing was changed"):
        migrate.upgrade(embedded)
    assert content(embedded) == before
    assert not safety.copy_of(embedded.home / "potstill.db").exists()


@pytest.mark.parametrize("commit", ["", 'op.get_bind().exec_driver_sql("COMMIT"); '])
def test_one_that_was_killed_is_put_back_by_the_next(
    embedded: Settings, step: Any, commit: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = content(embedded)
    place = step(commit + 'op.execute("UPDATE alembic_version SET version_num = 9998"); os._exit(9)')
    program = (
        "import sys; from pathlib import Path; from service.config import Settings\n"
        "from service.persistence import migrate, schema\n"
        "schema.SCRIPTS = Path(sys.argv[1]); migrate.upgrade(Settings(home=Path(sys.argv[2]), database_url=None))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(place), str(embedded.home)], cwd=ROOT, env=os.environ, check=False
    )
    assert ended.returncode == 9
    copy = safety.copy_of(embedded.home / "potstill.db")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    monkeypatch.setattr(schema, "SCRIPTS", ROOT / "migrations")
    assert migrate.upgrade(embedded) == (LAST, LAST)
    assert content(embedded) == before
    assert "a migration was cut off" in caplog.text
    assert not copy.exists()


def test_the_copy_has_what_is_only_in_the_log_and_is_its_owners_alone(embedded: Settings) -> None:
    database = embedded.home / "potstill.db"
    before = os.umask(0)
    try:
        with sqlite3.connect(database) as live:
            live.execute("PRAGMA journal_mode=WAL")
            live.execute("PRAGMA wal_autocheckpoint=0")
            live.execute("UPDATE federations SET accuracy = 0.75")
            live.commit()
            copy = safety.keep(database)
            assert live.execute("SELECT count(*) FROM federations").fetchone()[0] == 3
    finally:
        os.umask(before)
    with sqlite3.connect(copy) as kept:
        assert kept.execute("SELECT DISTINCT accuracy FROM federations").fetchall() == [(0.75,)]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert not copy.with_name(f"{copy.name}-wal").exists()


def test_without_room_for_the_copy_nothing_begins(
    embedded: Settings, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    before = content(embedded)
    step("pass")
    monkeypatch.setattr(safety, "_write", full)
    with pytest.raises(SchemaError, match="nothing was changed.*disk is full. It needs [0-9]+ bytes in"):
        migrate.upgrade(embedded)
    assert content(embedded) == before
    assert sorted(embedded.home.glob("*before-migration*")) == []


def test_others_cannot_write_while_it_is_migrated(embedded: Settings, step: Any) -> None:
    """What is written between the copy and the end would be lost if the copy were put back."""
    step(
        "import sqlite3; other = sqlite3.connect(op.get_bind().engine.url.database, timeout=0)\n"
        '    try: other.execute("DELETE FROM tokens")\n'
        '    except sqlite3.OperationalError as error: raise RuntimeError(f"kept out: {error}")'
    )
    with pytest.raises(SchemaError, match="kept out: database is locked"):
        migrate.upgrade(embedded)
    engine = create_engine(embedded.resolved_database_url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM tokens")).scalar() == 2
    engine.dispose()
