"""Rounds that do not wait: what works and updates are called, and how old an update is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.buffered import Given, Version, Work, labels, staleness


@pytest.mark.parametrize(("text", "work"), [("rnd_1", Work("rnd_1")), ("rnd_1.2", Work("rnd_1", 2))])
def test_a_work_goes_by_its_rounds_id_and_its_turn(text: str, work: Work) -> None:
    assert (Work.read(text), str(work)) == (work, text)


@pytest.mark.parametrize("text", ["rnd_1.0", "rnd_1.01", "rnd_1.x", "rnd_1.1000", "a.b.1", "." * 70])
def test_what_is_no_work_is_a_round_that_there_is_not(text: str) -> None:
    assert Work.read(text) == Work(text)


def test_a_clients_further_updates_are_numbered_by_what_they_began_from() -> None:
    first, older, again = Given("anna", 4, 0, "c1"), Given("anna", 3, 1, "c1"), Given("anna", 4, 1, "c1")
    named = labels([again, Given("ben", 4, 0, "c2"), first, older])
    assert named == {older: "anna", first: "anna/02", again: "anna/03", Given("ben", 4, 0, "c2"): "ben"}


WORK = st.builds(Given, st.sampled_from("ab"), st.integers(1, 4), st.integers(0, 3), st.sampled_from("xy"))


@given(st.lists(WORK, unique=True).flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))))
def test_labels_do_not_depend_on_the_order_of_arrival(found: tuple[list[Given], list[Given]]) -> None:
    one, other = found
    assert labels(one) == labels(other)
    assert len(set(labels(one).values())) == len(one)


def test_an_update_is_as_old_as_its_model_was_replaced() -> None:
    """Of four rounds one was skipped and one left this model as it was; the one that is fused may replace it."""
    rounds = [Version("published", ["main"]), Version("skipped", []), Version("published", ["other"])]
    assert staleness("main", rounds) == 1
    assert staleness("main", [*rounds, Version("aggregating", [])]) == 2
    assert staleness("main", []) == 0
