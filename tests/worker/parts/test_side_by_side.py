"""Parts done side by side: in order, with the errors of one thread, and with nobody working on afterwards."""

import threading
from contextlib import closing

import pytest

from contract.tensors import pulse, watched
from worker.parts import side_by_side
from worker.parts.side_by_side import in_order

PATIENCE = 30.0


@pytest.fixture(autouse=True, params=[1, 2])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(side_by_side, "_cores", lambda: request.param)
    return int(request.param)


def test_results_come_in_the_order_of_the_items() -> None:
    assert list(in_order(lambda each: each**2, range(50))) == [(each, each**2) for each in range(50)]
    assert list(in_order(lambda each: each**2, [3])) == [(3, 9)]
    assert list(in_order(lambda each: each**2, [])) == []


def test_two_cores_do_two_items_at_once(cores: int) -> None:
    begun = [threading.Event(), threading.Event()]

    def work(item: int) -> bool:
        begun[item].set()
        return cores == 1 or begun[1 - item].wait(PATIENCE)

    assert list(in_order(work, range(2))) == [(0, True), (1, True)]


def test_an_error_comes_in_its_turn_and_ends_all() -> None:
    done: list[int] = []

    def work(item: int) -> int:
        if item == 3:
            raise ValueError(item)
        done.append(item)
        return item

    taken: list[int] = []
    with pytest.raises(ValueError, match="3"), closing(in_order(work, range(1000))) as made:
        taken.extend(item for item, _ in made)
    assert taken == [0, 1, 2]
    assert len(done) < 10, "those that were begun before the error was met"


def test_whoever_takes_no_more_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with closing(in_order(lambda each: each, range(1000))) as made:
        assert next(made) == (0, 0)
    assert threading.active_count() == before


def test_a_look_at_each_item_can_end_the_work() -> None:
    asked: list[int] = []

    def ask() -> None:
        asked.append(len(asked))
        if len(asked) == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        list(in_order(lambda each: each, range(1000), ask))
    assert asked == [0, 1, 2]


def test_the_watcher_of_the_work_is_heard_in_all_threads() -> None:
    heard: list[str] = []
    with watched(lambda: heard.append(threading.current_thread().name)):
        list(in_order(lambda each: pulse(), range(8)))
    assert len(heard) == 8
