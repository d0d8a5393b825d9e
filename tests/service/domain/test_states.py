"""The state machines, pair by pair: what is written here is what there is, and nothing else."""

from typing import get_args

import pytest

from contract.wire.federations import TERMINAL_STATES, FederationState
from contract.wire.problems import KINDS
from contract.wire.rounds import JobState, RoundState
from service.domain.errors import DomainError, invalid_field, not_found
from service.domain.principal import Principal
from service.domain.states import FEDERATION, JOB, ROUND, Table, advance

LIVE = ("created", "preparing", "training_generator", "collecting_discriminators", "scoring", "running", "paused")
EXPECTED: dict[str, tuple[Table, tuple[str, ...], set[tuple[str, str, str]]]] = {
    "federation": (
        FEDERATION,
        get_args(FederationState),
        {
            ("created", "start", "preparing"),
            ("preparing", "collect", "collecting_discriminators"),
            ("preparing", "train_generator", "training_generator"),
            ("training_generator", "collect", "collecting_discriminators"),
            ("collecting_discriminators", "score", "scoring"),
            ("preparing", "run", "running"),
            ("training_generator", "run", "running"),  # the generator is for data alone
            ("collecting_discriminators", "run", "running"),  # a version before collected what nobody read
            ("scoring", "run", "running"),
            ("scoring", "recollect", "collecting_discriminators"),
            ("running", "pause", "paused"),
            ("paused", "resume", "running"),
            ("running", "finish", "finished"),
            ("failed", "revive", "preparing"),
            ("failed", "revive_scoring", "scoring"),
            ("failed", "revive_generator", "training_generator"),
            *((state, "cancel", "cancelled") for state in LIVE),
            *((state, "fail", "failed") for state in LIVE),
        },
    ),
    "round": (
        ROUND,
        get_args(RoundState),
        {
            ("collecting", "aggregate", "aggregating"),
            ("collecting", "skip", "skipped"),
            ("aggregating", "publish", "published"),
            ("aggregating", "reject", "skipped"),
            ("aggregating", "fail", "failed"),
            ("collecting", "fail", "failed"),
            ("failed", "retry", "aggregating"),
            ("aggregating", "reopen", "collecting"),  # an update's file was lost, and its client is asked again
        },
    ),
    "job": (
        JOB,
        get_args(JobState),
        {
            ("queued", "claim", "running"),
            ("running", "claim", "running"),
            ("running", "release", "queued"),
            ("running", "finish", "done"),
            ("running", "fail", "failed"),
            ("queued", "cancel", "cancelled"),
            ("running", "cancel", "cancelled"),
            ("failed", "retry", "queued"),
            ("cancelled", "retry", "queued"),
        },
    ),
}


@pytest.mark.parametrize("what", EXPECTED)
def test_every_pair_of_state_and_event(what: str) -> None:
    table, states, expected = EXPECTED[what]
    found = set()
    for event in table:
        for state in states:
            try:
                found.add((state, event, advance(table, state, event, what)))
            except DomainError as error:
                assert error.kind == "invalid-transition"
                assert error.members["state"] == state
                assert state in error.detail
                assert event in error.detail
    assert found == expected
    assert {after for _, _, after in found} <= set(states)


def test_states_that_end_a_federation_have_no_way_out_but_a_retry() -> None:
    leaving = {(state, event) for event, row in FEDERATION.items() for state in row if state in TERMINAL_STATES}
    assert leaving == {("failed", "revive"), ("failed", "revive_scoring"), ("failed", "revive_generator")}


def test_a_federations_tokens_are_good_for_it_alone() -> None:
    for role in ("device", "join"):
        principal = Principal(role, "x", federation_id="fed_1")
        principal.need_federation("fed_1")
        with pytest.raises(DomainError) as caught:
            principal.need_federation("fed_2")
        assert caught.value.kind == "forbidden"
    Principal("operator", "x").need_federation("fed_2")


def test_refusals_name_what_is_wrong() -> None:
    assert "'x" + "x" * 63 + "'" in not_found("round", "x" * 500).detail
    error = invalid_field("a.b", "is odd", expected=3)
    assert (error.kind, error.members) == ("invalid-field", {"field": "a.b", "expected": 3})
    assert error.kind in KINDS
