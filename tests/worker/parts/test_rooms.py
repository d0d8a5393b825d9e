"""Memory that a thread uses again: the same within `reused`, its own everywhere else; another thread has another."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from contract.tensors import write_file
from worker.parts import fuse, rooms
from worker.parts.blocks import Source


def test_a_room_is_the_same_until_a_larger_one_or_another_kind_is_asked_for() -> None:
    with rooms.reused():
        first = rooms.room("a", 8)
        assert np.shares_memory(first, rooms.room("a", 5))
        assert len(rooms.room("a", 5)) == 5
        assert not np.shares_memory(first, rooms.room("b", 8))
        assert rooms.room("a", 5, np.float32).dtype == np.float32
        assert len(rooms.room("a", 9, np.float32)) == 9
    rooms.forget()


def test_elsewhere_each_is_its_own() -> None:
    assert not np.shares_memory(rooms.room("a", 8), rooms.room("a", 8))


def test_threads_share_none() -> None:
    with rooms.reused(), ThreadPoolExecutor(1) as pool:
        mine = rooms.room("a", 8)
        theirs = pool.submit(_in_a_thread).result()
        assert not np.shares_memory(mine, theirs)
        assert np.shares_memory(mine, rooms.room("a", 8))
    rooms.forget()


def _in_a_thread() -> object:
    with rooms.reused():
        return rooms.room("a", 8)


def test_a_mean_leaves_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "a", {"w": np.ones(1000, np.float32), "v": np.ones(10)}, {})
    fuse.average_files([Source("a", tmp_path / "a", 1)], tmp_path / "out")
    assert not rooms._ROOMS.mine
