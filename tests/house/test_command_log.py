"""What commands do to an installation without the API is in its audit log, whose chain goes on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from contract.audit import first_break
from contract.wire.audit import AuditFilter
from service.domain.principal import Principal
from service.operations.access import sessions, tokens
from service.operations.ledger import audit
from service.persistence import migrate
from service.persistence.tables import ModelRow, SessionRow

from .installation import House

Run = Callable[..., str]


def log(house: House) -> list[dict[str, Any]]:
    """Return the rows, the oldest first, of a log that is whole."""
    with house.store.read() as session:
        page = audit.listing(session, AuditFilter(limit=500, oldest_first=True))
    rows = [item.chained() for item in page.items]
    assert first_break(rows) is None
    return rows


def test_gc_and_backup_say_what_went_and_where_it_went(house: House, potstill: Run, tmp_path: Path) -> None:
    house.model(1)
    unnamed = house.model(2)
    size = house.path(unnamed).stat().st_size
    with house.store.write() as session:
        session.query(ModelRow).filter(ModelRow.digest == unnamed).delete()
    potstill("gc", "--older-than", "0", "--dry-run")
    potstill("verify")
    assert log(house) == [], "looking changes nothing"
    potstill("gc", "--older-than", "0")
    made = json.loads(potstill("backup", str(tmp_path / "b"), "--with-secret", "--json"))
    first, second = log(house)
    assert (first["action"], first["detail"]) == ("installation.gc", {"files": 1, "bytes": size})
    assert (second["action"], second["target"]) == ("installation.backup", str(tmp_path / "b"))
    assert second["detail"] == {"with_secret": True, "bytes": made["bytes"]}
    assert {(row["actor_id"], row["role"], row["address"]) for row in (first, second)} == {
        ("command-line", "command-line", "local")
    }


def test_a_restored_log_goes_on_with_the_restore(house: House, potstill: Run, tmp_path: Path) -> None:
    potstill("gc")
    with house.store.write() as session:
        token = tokens.create(session, house.settings.key, "ann", "operator")
        sessions.begin(session, house.settings.key, Principal("operator", token.id, nonce=token.nonce))
    potstill("backup", str(tmp_path / "b"))
    potstill("restore", str(tmp_path / "b"), "--home", str(tmp_path / "new"))
    again = House(tmp_path / "new")
    try:
        rows = log(again)
        assert rows[:-1] == log(house)[:3], "the row of the backup itself came after the copy"
        with again.store.read() as session:
            assert session.query(SessionRow).count() == 0, "who was signed out since is not signed in again"
        assert (rows[-1]["action"], rows[-1]["target"]) == ("installation.restore", str(tmp_path / "b"))
        told = json.loads((tmp_path / "b" / "backup.json").read_text())
        assert rows[-1]["detail"]["revision"] == told["revision"]
        assert rows[-1]["detail"]["made_at"][:19] == told["made_at"][:19]
    finally:
        again.database.close()


def test_another_schema_is_in_the_log_and_a_new_installation_is_not(
    house: House, potstill: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    migrate.downgrade(house.settings, "0003")
    for _ in range(2):
        potstill("migrate")
    (row,) = log(house)
    assert (row["action"], row["detail"]) == ("installation.migrate", {"before": "0003"})
    assert row["target"] == migrate.upgrade(house.settings)[1]
    monkeypatch.setenv("POTSTILL_HOME", str(tmp_path / "fresh"))
    potstill("migrate")
    fresh = House(tmp_path / "fresh")
    assert log(fresh) == []
    fresh.database.close()


def test_a_backup_that_the_log_cannot_take_says_so_and_is_whole(house: House, potstill: Run, tmp_path: Path) -> None:
    digest = house.model(1)
    with house.store.write() as session:
        refuse = "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        session.execute(text(refuse))
    told = potstill("backup", str(tmp_path / "b"), code=1)
    assert "installation.backup" in told and "it is done, but the audit log has no row of it: disk is full" in told
    assert (tmp_path / "b" / "backup.json").exists()
    assert digest[7:] in {path.name for path in (tmp_path / "b" / "blobs").rglob("*")}
