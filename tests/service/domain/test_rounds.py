"""When a round closes: the whole table, and properties of selection."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.tasks import TASKS
from contract.wire.plans import Gate, RoundsPlan
from service.domain import gate
from service.domain.rounds import RoundView, closes_at, decide, is_over, room
from service.domain.selection import choose, needed

DEADLINE = datetime(2026, 1, 1, tzinfo=UTC)
EARLY, LATE = DEADLINE - timedelta(seconds=1), DEADLINE


@pytest.mark.parametrize(
    ("asked", "answered", "wanted", "least", "early", "late"),
    [
        # asked, answered, needed, min_updates -> before the deadline, at it
        (3, 0, 3, 1, "wait", "skip"),
        (3, 1, 3, 1, "wait", "aggregate"),
        (3, 2, 3, 1, "wait", "aggregate"),
        (3, 3, 3, 1, "aggregate", "aggregate"),
        (3, 1, 3, 2, "wait", "skip"),
        (3, 2, 3, 2, "wait", "aggregate"),
        (5, 2, 3, 1, "wait", "aggregate"),  # more were asked than are needed
        (5, 3, 3, 1, "aggregate", "aggregate"),
        (5, 4, 3, 1, "aggregate", "aggregate"),
        (1, 1, 3, 1, "aggregate", "aggregate"),  # two of three were revoked
        (1, 1, 3, 2, "skip", "skip"),  # everybody left has answered, but they are too few
        (0, 0, 3, 1, "skip", "skip"),  # nobody is left: no use in waiting
        (1, 1, 1, 1, "aggregate", "aggregate"),
        (2, 2, 2, 3, "skip", "skip"),
    ],
)
def test_decide(asked: int, answered: int, wanted: int, least: int, early: str, late: str) -> None:
    view = RoundView(asked, answered, wanted, least, DEADLINE)
    assert decide(view, EARLY).action == early
    assert decide(view, LATE).action == late


@pytest.mark.parametrize(
    ("answered", "lost", "training", "plan", "seconds", "action", "reason"),
    [
        # five asked, three needed, two at least; seconds from the deadline
        (2, 0, 3, {}, -1, "wait", ""),
        (2, 3, 0, {}, -1, "aggregate", "2 of 5 answered, 3 lost"),
        (2, 2, 1, {}, -1, "wait", ""),  # one of those that are there has not answered
        (1, 4, 0, {}, -1, "wait", ""),  # too few: the lost may come back until the deadline
        (1, 4, 0, {}, 0, "skip", "got 1 of 2 updates by the deadline"),
        (1, 0, 0, {"on_deadline": "fail"}, 0, "fail", "got 1 of 2 updates by the deadline"),
        (1, 0, 0, {"on_deadline": "extend"}, 0, "extend", "got 1 of 2 updates by the deadline; extended 1 of 3"),
        (2, 0, 3, {"on_deadline": "fail"}, 0, "aggregate", "deadline: 2 of 5 answered"),
        (2, 0, 3, {"late": "grace", "grace_seconds": 9}, 8, "wait", "grace: 3 still train"),
        (1, 0, 1, {"late": "grace", "grace_seconds": 9}, 8, "wait", "grace: 1 still train"),
        (2, 3, 0, {"late": "grace", "grace_seconds": 9}, 8, "aggregate", "2 of 5 answered, 3 lost"),
        (2, 0, 0, {"late": "grace", "grace_seconds": 9}, 0, "aggregate", "deadline: 2 of 5 answered"),
        (2, 0, 3, {"late": "grace", "grace_seconds": 9}, 9, "aggregate", "deadline: 2 of 5 answered"),
        (1, 0, 3, {"late": "grace", "grace_seconds": 9}, 9, "skip", "got 1 of 2 updates by the deadline"),
    ],
)
def test_the_lost_the_late_and_the_deadline(
    answered: int, lost: int, training: int, plan: dict[str, object], seconds: int, action: str, reason: str
) -> None:
    view = RoundView(5, answered, 3, 2, DEADLINE, lost, training)
    decision = decide(view, DEADLINE + timedelta(seconds=seconds), RoundsPlan.model_validate(plan))
    assert (decision.action, decision.reason) == (action, reason)


def test_a_round_is_extended_so_often_and_then_skipped() -> None:
    plan = RoundsPlan(on_deadline="extend", max_extensions=2)
    actions = [decide(RoundView(5, 1, 3, 2, DEADLINE, extensions=n), DEADLINE, plan).action for n in range(4)]
    assert actions == ["extend", "extend", "skip", "skip"]
    alone = RoundView(1, 1, 3, 2, DEADLINE)  # the others were revoked: more time brings nothing
    assert decide(alone, EARLY, plan).action == "skip"
    assert decide(alone, EARLY, RoundsPlan(on_deadline="fail")).action == "fail"


plans = st.builds(
    RoundsPlan,
    on_deadline=st.sampled_from(["skip", "extend", "fail"]),
    max_extensions=st.integers(1, 3),
    late=st.sampled_from(["refuse", "grace"]),
    grace_seconds=st.integers(1, 100),
)


@st.composite
def views(draw: st.DrawFn) -> RoundView:
    asked = draw(st.integers(0, 20))
    answered = draw(st.integers(0, asked))
    lost = draw(st.integers(0, asked - answered))
    training = draw(st.integers(0, asked - answered - lost))
    needed, least, extensions = draw(st.integers(1, 20)), draw(st.integers(1, 20)), draw(st.integers(0, 4))
    return RoundView(asked, answered, needed, least, DEADLINE, lost, training, extensions)


@given(view=views(), plan=plans, seconds=st.integers(-200, 200))
def test_decide_never_fuses_too_few_nor_waits_for_ever(view: RoundView, plan: RoundsPlan, seconds: int) -> None:
    moment = DEADLINE + timedelta(seconds=seconds)
    decision = decide(view, moment, plan)
    if decision.action == "aggregate":
        assert view.answered >= view.min_updates
    if decision.action in ("skip", "fail", "extend"):
        assert view.answered < view.min_updates
        assert decision.reason.startswith(f"got {view.answered} of {view.min_updates} updates")
    if moment >= closes_at(DEADLINE, plan):
        assert decision.action != "wait"
    if decision.action == "extend":
        assert view.extensions < plan.max_extensions
        assert moment >= DEADLINE
    if decision.action == "wait":
        assert view.asked > view.answered
        assert moment < DEADLINE or (view.training and plan.late == "grace")
    else:
        assert decision.reason


@given(view=views(), plan=plans, seconds=st.integers(-200, 200))
def test_a_device_that_is_lost_never_makes_a_round_wait_longer(view: RoundView, plan: RoundsPlan, seconds: int) -> None:
    moment = DEADLINE + timedelta(seconds=seconds)
    if not view.training:
        return
    gone = replace(view, lost=view.lost + 1, training=view.training - 1)
    if decide(view, moment, plan).action != "wait":
        assert decide(gone, moment, plan).action == decide(view, moment, plan).action


@given(view=views(), plan=plans)
def test_room_is_how_many_updates_come_before_one_may_end_a_round(view: RoundView, plan: RoundsPlan) -> None:
    moment, left = DEADLINE - timedelta(seconds=1), room(view)
    told = [
        decide(replace(view, answered=view.answered + more), moment, plan).action for more in range(max(left, 0) + 1)
    ]
    if left > 0:
        assert told == ["wait"] * left + [told[-1]] and told[-1] != "wait"
    else:
        assert told != ["wait"] or view.answered + view.lost >= view.asked


@pytest.mark.parametrize("policy", ["skip", "extend", "fail"])
@pytest.mark.parametrize("answered", [0, 1, 3])
@pytest.mark.parametrize("asked", [0, 3])
def test_a_round_that_waits_for_a_model_is_left_open(policy: str, answered: int, asked: int) -> None:
    """Whatever else would happen to it: full, empty, late, or with nobody left."""
    view = RoundView(asked, min(answered, asked), 3, 1, DEADLINE, waits=True)
    plan = RoundsPlan.model_validate({"on_deadline": policy})
    assert [decide(view, moment, plan).action for moment in (EARLY, LATE)] == ["wait", "wait"]
    assert decide(replace(view, waits=False), LATE, plan).action != "wait"


@pytest.mark.parametrize(
    ("index", "total", "accuracy", "target", "over"),
    [
        (1, 2, None, None, False),
        (2, 2, None, None, True),
        (3, 2, None, None, True),
        (1, 2, 0.5, 0.5, True),
        (1, 2, 0.49, 0.5, False),
        (1, 2, None, 0.5, False),
        (1, 2, 0.9, None, False),
    ],
)
def test_is_over(index: int, total: int, accuracy: float | None, target: float | None, over: bool) -> None:
    assert is_over(index, total, accuracy, target) is over


def test_an_error_that_is_low_enough_ends_a_federation_and_one_that_rises_is_turned_away() -> None:
    rmse = TASKS["regression"].metric("rmse")
    assert [is_over(1, 9, measured, 0.5, rmse) for measured in (0.6, 0.5, 0.4)] == [False, True, True]
    terms = Gate(metric="test", max_drop=0.1)
    figures = {"a": {"before": 1.0, "after": 1.05}, "b": {"before": 1.0, "after": 1.2}}
    assert gate.rejected(terms, figures, rmse) == {"b": "test rmse of 'b' rose from 1.0000 to 1.2000, by more than 0.1"}
    assert gate.best({1: 0.5, 2: 0.4, 3: 0.6}, 3, rmse) == 2 and gate.best({1: 0.5, 2: 0.4}, 2, rmse) is None


@pytest.mark.parametrize(
    ("asked", "enrolled", "wanted"),
    [
        (None, 7, 7),
        (3, 7, 3),
        (9, 7, 7),
        (1, 7, 1),
        (0.5, 7, 4),
        (0.1, 7, 1),
        (0.1, 10, 1),
        (0.3, 10, 3),  # 0.1 * 3 is above 0.3 in binary: no fourth client
        (1.0, 7, 7),
        (0.7, 10, 7),
    ],
)
def test_needed(asked: float | None, enrolled: int, wanted: int) -> None:
    assert needed(RoundsPlan(clients_per_round=asked), enrolled) == wanted


names = st.lists(st.text("abcdefgh-0123", min_size=1, max_size=6), min_size=1, max_size=15, unique=True)


def alike(names: Sequence[str]) -> dict[str, int]:
    """Return clients of one sample each."""
    return dict.fromkeys(names, 1)


@given(names=names, seed=st.integers(0, 2**63 - 1), index=st.integers(1, 1000), data=st.data())
def test_who_is_asked_depends_on_names_and_not_on_their_order(
    names: list[str], seed: int, index: int, data: st.DataObject
) -> None:
    plan = RoundsPlan(clients_per_round=data.draw(st.integers(1, 15)))
    chosen = choose(plan, seed, index, alike(names))
    assert choose(plan, seed, index, alike(data.draw(st.permutations(names)))) == chosen
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(names)
    assert len(chosen) == needed(plan, len(names))


@given(names=names, seed=st.integers(0, 2**63 - 1))
def test_without_a_number_everybody_is_asked(names: list[str], seed: int) -> None:
    assert choose(RoundsPlan(), seed, 1, alike(names)) == sorted(names)


@given(names=names, seed=st.integers(0, 10), factor=st.floats(1, 10))
def test_over_selection_asks_more_but_never_more_than_there_are(names: list[str], seed: int, factor: float) -> None:
    few = choose(RoundsPlan(clients_per_round=3), seed, 1, alike(names))
    many = choose(RoundsPlan(clients_per_round=3, over_selection=factor), seed, 1, alike(names))
    assert set(few) <= set(many)
    assert len(few) <= len(many) <= min(len(names), len(few) * factor + 1)


@settings(deadline=None)
@given(seed=st.integers(0, 10))
def test_a_newcomer_changes_nobodys_number(seed: int) -> None:
    plan = RoundsPlan(clients_per_round=3)
    before = choose(plan, seed, 1, alike(["a", "b", "c", "d", "e", "f"]))
    after = choose(plan, seed, 1, alike(["a", "b", "c", "d", "e", "f", "newcomer"]))
    assert set(after) <= {*before, "newcomer"}


def test_over_many_rounds_everybody_is_asked_about_as_often() -> None:
    plan, people = RoundsPlan(clients_per_round=3), [f"c{i}" for i in range(10)]
    counts = Counter(name for index in range(2000) for name in choose(plan, 7, index, alike(people)))
    assert sum(counts.values()) == 6000
    # 600 expected of each; the standard deviation of a binomial is 20.5
    assert all(abs(count - 600) < 5 * 20.5 for count in counts.values())
    assert len({tuple(choose(plan, 7, index, alike(people))) for index in range(50)}) > 20


@pytest.mark.parametrize(
    ("plan", "quorum"),
    [
        ({}, 1),
        ({"min_updates": 3}, 3),
        ({"clients_per_round": 5}, 5),
        ({"clients_per_round": 0.5, "min_updates": 2}, 2),
        ({"clients_per_round": 5, "min_clients": 8}, 8),
        ({"min_clients": 2, "min_updates": 3}, 3),
        ({"clients_per_round": 2, "over_selection": 2.0, "min_updates": 4}, 4),
    ],
)
def test_how_many_must_be_there_before_the_first_round(plan: dict[str, float], quorum: int) -> None:
    assert RoundsPlan.model_validate(plan).quorum == quorum
