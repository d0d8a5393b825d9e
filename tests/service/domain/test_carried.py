"""What a recipe keeps when its models change otherwise than by a published round: the table of names."""

import pytest

from service.domain.carried import after_gate, of_another_path, too_new

STATE = {
    "velocity.main": 4,
    "adam.main~1": 4,
    "control.main": 4,
    "send.control.main": 4,
    "past.main.2": 2,
    "past.main.4": 4,
    "global.main.3": 3,
    "send.teacher.main": 4,
    "tgp": 4,
    "send.prototypes": 4,
    "send.public": 0,
    "send.targets": 4,
}


@pytest.mark.parametrize(
    ("back_to", "stay"),
    [
        (4, set(STATE)),
        (3, {"control.main", "send.control.main", "past.main.2", "global.main.3", "send.public"}),
        (2, {"control.main", "send.control.main", "past.main.2", "send.public"}),
        (0, {"control.main", "send.control.main", "send.public"}),
    ],
)
def test_what_a_rollback_leaves(back_to: int, stay: set[str]) -> None:
    assert set(STATE) - too_new(STATE, back_to) == stay


def test_a_promotion_drops_the_server_optimisers_steps_of_that_model_alone() -> None:
    assert of_another_path(STATE.keys(), "main") == {"velocity.main"}
    assert of_another_path(STATE.keys(), "main~1") == {"adam.main~1"}


OLD = {"velocity.main": 1, "velocity.other": 1, "control.main": 1, "global.main.3": 1, "send.public": 1}
NEW = {"velocity.main": 2, "velocity.other": 2, "control.main": 2, "global.main.4": 2, "tgp": 2, "send.public": 1}


@pytest.mark.parametrize(
    ("rejected", "nothing_left", "kept"),
    [
        (set(), False, NEW),
        (
            {"main"},
            False,
            {
                "velocity.main": 1,
                "velocity.other": 2,
                "control.main": 2,
                "global.main.3": 1,
                "tgp": 2,
                "send.public": 1,
            },
        ),
        ({"main", "other"}, True, OLD | {"control.main": 2}),
    ],
)
def test_what_the_gate_leaves(rejected: set[str], nothing_left: bool, kept: dict[str, int]) -> None:
    assert after_gate(OLD, NEW, rejected, nothing_left) == kept
