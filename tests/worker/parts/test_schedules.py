"""Learning rates and stopping."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.local import Adam
from contract.recipes.parts import Schedule
from tests.reference import schedules as slow
from worker.parts import schedules
from worker.parts.errors import PartError


def test_cosine_by_hand() -> None:
    assert [schedules.cosine_lr(0.2, step, 4) for step in (0, 2, 4)] == pytest.approx([0.2, 0.1, 0.0])


@given(st.floats(0, 10), st.integers(1, 99), st.integers(0, 99))
def test_cosine_is_the_slow_one(lr0: float, total: int, step: int) -> None:
    step = min(step, total)
    assert schedules.cosine_lr(lr0, step, total) == pytest.approx(slow.cosine(lr0, step, total), rel=1e-9, abs=1e-12)


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


@pytest.mark.parametrize("accuracy", [math.nan, math.inf])
def test_an_accuracy_that_is_no_number_is_refused(accuracy: float) -> None:
    with pytest.raises(PartError) as caught:
        schedules.Watch().seen(10, accuracy)
    assert caught.value.code == "non_finite"


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3]), max_size=8), st.integers(1, 4), st.integers(1, 9), st.integers(1, 20))
def test_a_job_stops_where_the_slow_one_does(accuracies: list[float], every: int, patience: int, total: int) -> None:
    watch, stop, early = schedules.Watch(), total, False
    for step, accuracy in zip(range(every, total + 1, every), accuracies, strict=False):
        watch = watch.seen(step, accuracy)
        if watch.exhausted(step, patience):
            stop, early = step, True
            break
    assert (stop, watch.best_step, early) == slow.early_stop(accuracies, every, patience, total)


# ------------------------------------------------------------------------------------------------------------------ SWA
@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 9), st.integers(0, 30), st.integers(1, 40))
def test_swa_is_the_slow_one(high: float, low: float, cycle: int, start: int, total: int) -> None:
    rates, collected = slow.swa(high, low, cycle, start, total)
    steps = range(1, total + 1)
    made = [schedules.swa_lr(high, low, cycle, step) for step in steps]
    assert made == pytest.approx(rates, rel=1e-9, abs=1e-12)
    assert [step for step in steps if schedules.swa_collects(cycle, start, step)] == collected


def test_swa_of_fedbe() -> None:
    """10k images in batches of 128 over 20 epochs: 1580 steps, snapshots 275, 300, …, 1575: 53 of them."""
    collected = [step for step in range(1, 1581) if schedules.swa_collects(25, 250, step)]
    assert (collected[0], collected[-1], len(collected)) == (275, 1575, 53)
    rates = [schedules.swa_lr(1e-3, 4e-4, 25, step) for step in (25, 26)]
    assert rates == pytest.approx([4e-4, 9.76e-4])


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: schedules.swa_lr(1.0, 0.1, 0, 1), "bad_option"),
        (lambda: schedules.swa_lr(1.0, math.nan, 5, 1), "bad_option"),
        (lambda: schedules.swa_lr(1.0, 0.1, 5, 0), "out_of_range"),
        (lambda: schedules.swa_collects(5, -1, 1), "bad_option"),
        (lambda: schedules.some_steps(0), "no_steps"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("steps", "seen"),
    [(0, 0), (1, 4), (2, 8), (3, 10), (5, 18), (6, 20)],  # passes of 4, 4 and 2
)
def test_samples_of_so_many_steps(steps: int, seen: int) -> None:
    assert schedules.samples_of(steps, samples=10, batch_size=4) == seen


def test_a_last_batch_of_one_sample_is_not_seen() -> None:
    assert schedules.samples_of(4, samples=9, batch_size=4) == 16
    assert schedules.samples_of(3, samples=1, batch_size=4) == 3
    assert schedules.samples_of(3, samples=3, batch_size=8) == 9
