"""`potstill verify` and its `--repair`; programs on a database that is damaged."""

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from potstill.cli import app
from service.persistence.tables import ModelRow

from .installation import House


def flip(path: Path) -> None:
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(changed)


def spoil(database: Path) -> None:
    """Write over the pages behind the first one, as a disk or a copy that was cut off does."""
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(database, "r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 40_960)


def test_a_damaged_database_is_not_whole_and_every_command_says_what_to_do(
    house: House, potstill: Callable[..., str], tmp_path: Path
) -> None:
    """`verify` called it whole, and `up` ended with a traceback."""
    house.model(1)
    house.database.close()
    spoil(house.home / "potstill.db")
    told = json.loads(potstill("verify", "--json", code=3))
    assert {each["what"] for each in told["findings"]} == {"database"}
    assert "restore" in potstill("verify", code=3)
    for words in (["gc"], ["backup", str(tmp_path / "b")], ["up", "--port", "0"], ["migrate"]):
        result = CliRunner().invoke(app, words)
        assert (result.exit_code, result.exception.__class__) == (1, SystemExit), words
        assert "the database is damaged" in " ".join(result.stderr.split()), words
        assert "potstill restore" in " ".join(result.stderr.split()), words


def test_a_file_that_is_no_database_is_said_to_be_damaged(house: House, potstill: Callable[..., str]) -> None:
    house.database.close()
    for name in ("potstill.db-wal", "potstill.db-shm"):
        (house.home / name).unlink(missing_ok=True)
    (house.home / "potstill.db").write_bytes(b"no database at all" * 500)
    (found,) = json.loads(potstill("verify", "--json", code=3))["findings"]
    assert (found["digest"], found["what"]) == ("potstill.db", "database")


def test_rows_that_name_what_is_not_there_are_found(house: House, potstill: Callable[..., str]) -> None:
    digest = house.model(1)
    with sqlite3.connect(house.home / "potstill.db") as connection:
        connection.execute("UPDATE models SET federation_id = 'fed_gone' WHERE digest = ?", (digest,))
    (found,) = json.loads(potstill("verify", "--json", code=3))["findings"]
    assert found["what"] == "reference" and found["digest"].startswith("models row")
    assert "federations" in found["state"]


def test_repair_says_what_it_would_do_and_changes_nothing(house: House, potstill: Callable[..., str]) -> None:
    whole, bad, gone, unnamed = (house.model(seed) for seed in range(4))
    with house.store.write() as session:
        session.query(ModelRow).filter(ModelRow.digest == unnamed).delete()
    os.utime(house.path(unnamed), (0, 0))
    flip(house.path(bad))
    house.path(gone).unlink()
    before = {path: path.stat().st_mtime_ns for path in house.settings.resolved_blob_dir.rglob("*")}
    told = json.loads(potstill("verify", "--repair", "--json", code=3))
    assert not told["done"]
    assert {(step["digest"], step["act"]) for step in told["steps"]} == {
        (bad, "set aside"), (bad, "by hand"), (gone, "by hand"), (unnamed, "remove"),
    }  # fmt: skip
    assert {path: path.stat().st_mtime_ns for path in house.settings.resolved_blob_dir.rglob("*")} == before
    assert "potstill verify --repair --yes" in potstill("verify", "--repair", code=3)
    assert whole not in json.dumps(told)


def test_repair_with_yes_does_what_is_safe_and_leaves_a_row(house: House, potstill: Callable[..., str]) -> None:
    bad, unnamed, young = (house.model(seed) for seed in range(3))
    with house.store.write() as session:
        session.query(ModelRow).filter(ModelRow.digest.in_([unnamed, young])).delete()
    os.utime(house.path(unnamed), (0, 0))
    flip(house.path(bad))
    told = json.loads(potstill("verify", "--repair", "--yes", "--json", code=3))
    assert told["done"]
    assert (house.settings.resolved_blob_dir / "quarantine" / bad[7:]).exists()
    assert not house.path(bad).exists() and not house.path(unnamed).exists()
    assert house.path(young).exists(), "it may be named in a moment"
    with sqlite3.connect(house.home / "potstill.db") as connection:
        rows = connection.execute("SELECT action, target, role FROM audit ORDER BY seq").fetchall()
    assert ("blob.repair", bad, "command-line") in rows
    again = json.loads(potstill("verify", "--json", code=3))
    assert [each["state"] for each in again["findings"]] == ["missing"]


def test_yes_alone_is_refused(house: House, potstill: Callable[..., str]) -> None:
    assert "--repair" in potstill("verify", "--yes", code=1)


@pytest.mark.parametrize("count", [0, 2])
def test_files_that_nothing_names_are_counted_and_no_fault(
    house: House, potstill: Callable[..., str], count: int
) -> None:
    digests = [house.model(seed) for seed in range(3)]
    with house.store.write() as session:
        session.query(ModelRow).filter(ModelRow.digest.in_(digests[:count])).delete()
    assert json.loads(potstill("verify", "--json"))["unnamed"] == count
