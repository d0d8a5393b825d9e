"""Learning rates and stopping."""

import math

import pytest

from contract.local import Adam
from contract.recipes.parts import Schedule
from worker.parts import schedules
from worker.parts.errors import PartError


def test_cosine_by_hand() -> None:
    assert [schedules.cosine_lr(0.2, step, 4) for step in (0, 2, 4)] == pytest.approx([0.2, 0.1, 0.0])


@pytest.mark.parametrize(
    ("step", "total", "code"), [(0, 0, "no_steps"), (5, 4, "out_of_range"), (-1, 4, "out_of_range")]
)
def test_cosine_refuses(step: int, total: int, code: str) -> None:
    with pytest.raises(PartError) as caught:
        schedules.cosine_lr(0.1, step, total)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("constant", [1.0, 1.0]),
        ("cosine_per_job", [1.0, 0.5 * (1 + math.cos(math.pi / 4))]),
        ("cosine_across_rounds", [0.5 * (1 + math.cos(math.pi * 2 / 5))] * 2),
    ],
)
def test_learning_rate_of_round_three_of_five(kind: str, expected: list[float]) -> None:
    schedule = Schedule.model_validate({"optimizer": Adam(lr=1.0), "steps": 4, "lr": kind})
    assert [schedules.learning_rate(schedule, step, 4, 3, 5) for step in (0, 1)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("samples", "batch", "expected"), [(10, 5, 2), (11, 5, 2), (12, 5, 3), (3, 5, 1), (1, 5, 1), (3, 1, 3)]
)
def test_a_lonely_last_sample_is_left_out(samples: int, batch: int, expected: int) -> None:
    assert schedules.batches_of(samples, batch) == expected
    assert schedules.steps_of(Schedule(epochs=2, batch_size=batch), samples) == 2 * expected


def test_steps_are_taken_as_given_and_need_data() -> None:
    assert schedules.steps_of(Schedule(steps=7), 3) == 7
    with pytest.raises(PartError, match="empty"):
        schedules.steps_of(Schedule(steps=7), 0)


def test_equal_accuracy_is_no_improvement() -> None:
    watch = schedules.Watch().seen(10, 0.5).seen(20, 0.5)
    assert watch == schedules.Watch(0.5, 10)
    assert not watch.exhausted(29, 20) and watch.exhausted(30, 20)


def test_a_nan_accuracy_is_no_improvement() -> None:
    assert schedules.Watch().seen(10, 0.5).seen(20, math.nan) == schedules.Watch(0.5, 10)


def test_replay_by_hand() -> None:
    """Evaluations at 2, 4, 6; the best is at 2, patience 4 ends it at 6."""
    assert schedules.replay_early_stop([0.9, 0.8, 0.7, 1.0], 2, 4, 100) == schedules.Stop(6, 2, True)
    assert schedules.replay_early_stop([0.9, 0.8, 0.7], 2, 4, 6) == schedules.Stop(6, 2, True)
    assert schedules.replay_early_stop([0.9, 0.8], 2, 4, 5) == schedules.Stop(5, 2, False)


@pytest.mark.parametrize(("every", "patience", "total", "code"), [(0, 1, 9, "bad_option"), (1, 1, 0, "no_steps")])
def test_replay_refuses(every: int, patience: int, total: int, code: str) -> None:
    with pytest.raises(PartError) as caught:
        schedules.replay_early_stop([0.5], every, patience, total)
    assert caught.value.code == code
