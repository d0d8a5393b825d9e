"""A commit of another process is heard of at once, on both databases; a lost connection is made again."""

import threading

from sqlalchemy import text

from service.operations.access import tokens
from service.operations.ledger import after_commit
from service.operations.ledger.unit import Store
from service.persistence import watch
from service.persistence.engine import Database
from tests.service.conftest import Both

KEY = b"k" * 16


def _until(told: threading.Event) -> None:
    assert told.wait(10), "nobody told"
    told.clear()


def test_a_commit_of_another_process_is_told(both: Both) -> None:
    other, told = Database(both.settings), threading.Event()
    with other.read() as session:
        session.execute(text("SELECT 1"))
    with watch.news(both.database.engine, told.set) as moved:
        if moved is None:
            _until(told)  # once it listens
        else:
            assert moved() and not moved()
        with other.write() as session:
            tokens.create(session, KEY, "a", "viewer")
            watch.announce(session)
            assert not told.is_set() and not (moved and moved()), "told of before it is committed"
        if moved is None:
            _until(told)
        else:
            assert moved() and not moved()
    other.close()


def test_what_waiting_devices_may_care_about_is_announced(both: Both) -> None:
    other, told = Database(both.settings), threading.Event()
    with watch.news(both.database.engine, told.set) as moved:
        if moved is not None:
            return  # SQLite counts every commit
        _until(told)
        with Store(other, both.blobs.store).write() as session:
            session.info[after_commit.CHANGED] = True
        _until(told)
    other.close()


def test_a_lost_connection_is_made_again(both: Both) -> None:
    told = threading.Event()
    with watch.news(both.database.engine, told.set) as moved:
        if moved is not None:
            return
        _until(told)
        with both.database.write() as session:
            ended = session.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE query LIKE 'LISTEN potstill%' AND datname = current_database()"
                )
            ).all()
        assert ended
        _until(told)  # it listens again, and whatever came in between is looked for


def test_a_file_that_cannot_be_asked_means_look(both: Both) -> None:
    with watch.news(both.database.engine, lambda: None) as moved:
        pass
    if moved is not None:
        assert moved() and moved(), "closed"
