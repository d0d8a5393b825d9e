"""Bells: who waits is woken by a ring, and by nothing else but the time."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.infra.bells import Answering, Bells, ring


@pytest.fixture
def bells() -> Iterator[Bells]:
    made = Bells()
    yield made
    made.close()


def test_a_ring_before_the_wait_is_heard_once(bells: Bells, tmp_path: Path) -> None:
    bells.hang({tmp_path / "a.bell", tmp_path / "b.bell"})
    assert not bells.wait(0)
    ring(tmp_path / "b.bell")
    ring(tmp_path / "b.bell")
    assert bells.wait(60)
    assert not bells.wait(0)
    assert stat.S_IMODE((tmp_path / "a.bell").stat().st_mode) == 0o600


def test_of_two_who_wait_one_is_woken(bells: Bells, tmp_path: Path) -> None:
    other = Bells()
    for each in (bells, other):
        each.hang({tmp_path / "a.bell"})
    ring(tmp_path / "a.bell")
    assert [bells.wait(0), other.wait(0)] == [True, False]
    other.close()


def test_a_bell_that_was_taken_away_is_hung_anew(bells: Bells, tmp_path: Path) -> None:
    bells.hang({tmp_path / "a.bell"})
    (tmp_path / "a.bell").unlink()
    ring(tmp_path / "a.bell")
    assert not bells.wait(0)
    bells.hang({tmp_path / "a.bell"})
    ring(tmp_path / "a.bell")
    assert bells.wait(60)


def test_what_is_no_bell_is_neither_rung_nor_waited_at(bells: Bells, tmp_path: Path) -> None:
    (tmp_path / "a.bell").write_bytes(b"")
    bells.hang({tmp_path / "a.bell", tmp_path / "missing" / "b.bell"})
    ring(tmp_path / "a.bell")
    ring(tmp_path / "missing" / "b.bell")
    assert (tmp_path / "a.bell").read_bytes() == b""
    assert not bells.wait(0)


def test_nobody_at_a_bell_and_a_full_one_hold_nobody_up(bells: Bells, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.bell")
    ring(tmp_path / "a.bell")
    bells.hang({tmp_path / "b.bell"})
    pipe = os.open(tmp_path / "b.bell", os.O_RDWR | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(pipe, bytes(4096))
    ring(tmp_path / "b.bell")
    os.close(pipe)
    assert bells.wait(60)


def test_bells_that_are_let_go_ring_no_more(bells: Bells, tmp_path: Path) -> None:
    bells.hang({tmp_path / "a.bell", tmp_path / "b.bell"})
    bells.hang({tmp_path / "b.bell"})
    ring(tmp_path / "a.bell")
    assert not bells.wait(0)
    ring(tmp_path / "b.bell")
    assert bells.wait(60)


def test_whoever_answers_a_bell_is_told_of_each_ring_and_leaves_no_thread(tmp_path: Path) -> None:
    told, before = threading.Event(), threading.active_count()
    answering = Answering(tmp_path / "a.bell", told.set)
    for _ in range(3):
        ring(tmp_path / "a.bell")
        assert told.wait(60)
        told.clear()
    answering.close()
    assert threading.active_count() == before
