"""The virtual clock: how fast devices are, how long rounds last that wait, and who is in a buffer."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.wire.plans import RoundsPlan
from potstill.simulate.fleet import Fleet, Work
from potstill.simulate.speeds import Pace, Speeds, waited_for

NAMES = [f"client-{number:03}" for number in range(400)]


class Told(Pace):
    """Devices whose times and losses are said."""

    def __init__(self, times: dict[str, float], gone: frozenset[str] = frozenset(), fuse: float = 0.0):
        super().__init__(Speeds(fuse_seconds=fuse), 0)
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "gone", gone)

    def seconds(self, name: str, number: int, samples: int) -> float:
        return float(self.__dict__["times"][name])

    def drops(self, name: str, number: int) -> bool:
        return name in self.__dict__["gone"]


def test_95_of_100_devices_lie_within_the_spread() -> None:
    """ln of a device's slowness is normal; 2.5 % lie beyond either end."""
    pace = Pace(Speeds(spread=30.0), 3)
    found = [pace.slowness(name) for name in NAMES]
    low, high = np.quantile(found, [0.025, 0.975])
    assert high / low == pytest.approx(30, rel=0.35)
    assert np.median(found) == pytest.approx(1, rel=0.15)
    assert Pace(Speeds(spread=1.0), 3).slowness("client-000") == 1.0


def test_a_work_takes_its_samples_and_the_link_and_is_drawn_by_name_and_number() -> None:
    pace = Pace(Speeds(spread=1.0, jitter=0.0, sample_seconds=0.5, link_seconds=2.0), 1)
    assert pace.seconds("a", 0, 10) == 7.0
    varied = Pace(Speeds(), 1)
    assert varied.seconds("a", 0, 10) == Pace(Speeds(), 1).seconds("a", 0, 10)
    assert len({varied.seconds("a", number, 10) for number in range(5)}) == 5
    assert sum(Pace(Speeds(dropout=0.25), 1).drops(name, 0) for name in NAMES) == pytest.approx(100, abs=25)


def plan(**options: Any) -> RoundsPlan:
    return RoundsPlan.model_validate(options)


TIMES = {"a": 5.0, "b": 1.0, "c": 40.0}


@pytest.mark.parametrize(
    ("options", "gone", "needed", "names", "seconds"),
    [
        ({}, "", 3, ["b", "a", "c"], 40.0),  # the slowest
        ({}, "", 2, ["b", "a"], 5.0),  # two of those that were asked are enough
        ({}, "a", 3, ["b", "c"], 125.0),  # a is silent from its fifth second on, and lost after 4 x 30
        ({"deadline_seconds": 20}, "", 3, ["b", "a"], 20.0),  # c is late
        ({"deadline_seconds": 20}, "a", 3, ["b"], 20.0),
        ({"deadline_seconds": 100}, "a", 3, ["b", "c"], 100.0),  # before it is known to be lost
        ({}, "abc", 3, [], 160.0),
    ],
)
def test_a_round_that_waits_lasts_as_long_as_what_it_waits_for(
    options: dict[str, Any], gone: str, needed: int, names: list[str], seconds: float
) -> None:
    found = waited_for(Told(TIMES, frozenset(gone)), plan(**options), 1, dict.fromkeys(TIMES, 1), needed)
    assert (list(found.names), found.seconds) == (names, seconds)


def fleet(pace: Pace, names: Any, **options: Any) -> Fleet:
    made = Fleet(plan(mode="buffered", **options), pace, dict.fromkeys(names, "main"), lambda name, index: 10)
    made.published(0, ["main"])
    return made


APART = {"a": 5.0, "b": 1.0, "c": 38.0}


def test_a_buffer_by_hand() -> None:
    """b gives at 1 and waits for its share, a closes the buffer at 5, and so on; c comes at 38, after b at 36."""
    devices, clocks = fleet(Told(APART), APART, buffer=2, max_staleness=100), []
    for index in range(8):
        devices.published(index, ["main"])
        filled = devices.fill()
        clocks.append(filled.clock)
        last = "c" if index == 7 else "a"
        assert filled.works == [Work("b", index + 1, 0), Work(last, 1 if last == "c" else index + 1, 0)]
    assert clocks == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 38.0]
    assert [devices.age(work) for work in filled.works] == [0, 7]


def test_an_old_update_is_refused_and_its_device_begins_anew() -> None:
    devices = fleet(Told(APART), APART, buffer=2, max_staleness=6)
    for index in range(9):
        devices.published(index, ["main"])
        assert "c" not in {work.client for work in devices.fill().works}
    assert 1 not in devices.begun


def test_while_a_model_is_made_devices_go_on_from_the_one_before() -> None:
    """The first buffer closes at 5 and its model is there at 15: both begin again from the first, and wait for it."""
    devices = fleet(Told({"a": 5.0, "b": 1.0}, fuse=10.0), "ab", buffer=2, per_client=2)
    first = devices.fill()
    assert (first.works, first.clock) == ([Work("b", 1, 0), Work("b", 1, 1)], 2.0)
    devices.published(1, ["main"])
    second = devices.fill()
    assert second.works == [Work("b", 1, 2), Work("b", 1, 3), Work("a", 1, 0), Work("a", 1, 1)]
    assert second.clock == 12.0
    assert [second.called[work] for work in second.works] == ["b", "b/02", "a", "a/02"]
    assert {devices.age(work) for work in second.works} == {1}


def test_a_buffer_closes_at_its_deadline_or_is_skipped() -> None:
    slow = fleet(Told({"a": 50.0, "b": 5.0}), "ab", buffer=2, deadline_seconds=20)
    first = slow.fill()
    assert (first.works, first.clock, first.decision.action) == ([Work("b", 1, 0)], 20.0, "aggregate")
    silent = fleet(Told({"a": 50.0}), "a", buffer=1, deadline_seconds=20, on_deadline="extend", max_extensions=1)
    assert (silent.fill().decision.action, silent.clock) == ("skip", 40.0)


@settings(deadline=None, derandomize=True, max_examples=30)
@given(
    buffer=st.integers(1, 6), per_client=st.integers(1, 3), oldest=st.integers(0, 3), seed=st.integers(0, 5),
    fuse=st.sampled_from([0.0, 2.0]), dropout=st.sampled_from([0.0, 0.3]),
)  # fmt: skip
def test_what_always_holds(buffer: int, per_client: int, oldest: int, seed: int, fuse: float, dropout: float) -> None:
    names, share = NAMES[:5], min(per_client, buffer)
    pace = Pace(Speeds(fuse_seconds=fuse, dropout=dropout), seed)
    devices = fleet(pace, names, buffer=buffer, per_client=share, max_staleness=oldest)
    seen, clock = set[Work](), 0.0
    for index in range(12):
        devices.published(index, ["main"] if index % 4 != 3 else [])
        filled = devices.fill()
        assert filled.clock >= clock
        assert max(Counter(work.client for work in filled.works).values(), default=0) <= share
        assert all(devices.age(work) <= oldest for work in filled.works)
        assert not seen & set(filled.works)
        assert fuse or len(filled.works) <= buffer
        seen, clock = seen | set(filled.works), filled.clock
