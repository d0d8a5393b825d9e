"""Transactions: writers queue instead of failing, readers see whole states."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from service.operations.access import tokens
from service.operations.ledger import clock
from service.persistence.engine import Database
from service.persistence.tables import JobRow, TokenRow
from tests.service.conftest import Both, SettingsMaker

KEY = b"k" * 16


def test_sqlite_is_set_up_for_several_processes(make_settings: SettingsMaker) -> None:
    database = Database(make_settings(database_url=None))
    with database.read() as session:
        pragmas = {
            name: session.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 15000}
    database.close()


def test_read_then_write_of_many_at_once_loses_nothing(both: Both) -> None:
    """A deferred transaction on SQLite would fail at once with 'database is locked'; or lose updates without a word."""
    other = Database(both.settings)  # a second process, as far as the in-process lock is concerned
    with both.database.write() as session:
        id_ = tokens.create(session, KEY, "0", "viewer").id
    start = threading.Barrier(8)

    def count(number: int) -> None:
        start.wait()
        for _ in range(5):
            with (both.database if number % 2 else other).write() as session:
                row = session.scalars(select(TokenRow).where(TokenRow.id == id_).with_for_update()).one()
                row.name = str(int(row.name) + 1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    with both.database.read() as session:
        assert session.get_one(TokenRow, id_).name == "40"
    other.close()


def test_a_reader_does_not_wait_for_a_writer(both: Both) -> None:
    with both.database.write() as writing:
        tokens.create(writing, KEY, "a", "viewer")
        with both.database.read() as reading:
            assert list(reading.scalars(select(TokenRow))) == []
    with both.database.read() as reading:
        assert len(list(reading.scalars(select(TokenRow)))) == 1


def test_an_error_takes_everything_back(both: Both) -> None:
    with pytest.raises(RuntimeError), both.database.write() as session:
        tokens.create(session, KEY, "a", "viewer")
        raise RuntimeError
    with both.database.write() as session:
        assert list(session.scalars(select(TokenRow))) == []


def test_foreign_keys_hold(both: Both) -> None:
    with pytest.raises(IntegrityError), both.database.write() as session:
        moment = clock.now()
        session.add(
            JobRow(id="job_1", kind="round", state="queued", federation_id="fed_x", max_attempts=1, created_at=moment)
        )


def test_times_come_back_in_utc_whatever_zone_they_had(both: Both) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    moment = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=zone)
    with both.database.write() as session:
        row = tokens.create(session, KEY, "a", "viewer")
        row.created_at, id_ = moment, row.id
    with both.database.read() as session:
        read = session.get_one(TokenRow, id_).created_at
    assert read == moment
    assert read.tzinfo is UTC
