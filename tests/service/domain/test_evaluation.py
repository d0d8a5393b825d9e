"""What devices say of a model, each with one voice."""

import random

import pytest

from contract.evaluation import Evaluate, Evaluation, held_back
from contract.tasks import TASKS
from service.domain.evaluation import summary

ACCURACY = {each.name: each for each in TASKS["classification"].metrics}
ERRORS = {each.name: each for each in TASKS["regression"].metrics}


def told(values: list[float], name: str = "accuracy") -> dict[str, Evaluation]:
    return {f"d{number}": Evaluation(num_samples=4, metrics={name: value}) for number, value in enumerate(values)}


def test_mean_median_spread_and_the_worst_tenth() -> None:
    """Eleven devices: the worst tenth is two of them. Mean (0.1 + ... + 1.0 + 1.0) / 11 = 6.5 / 11."""
    figures = summary(told([number / 10 for number in range(1, 11)] + [1.0]), ACCURACY)
    assert figures is not None
    assert (figures["devices"], figures["samples"]) == (11, 44)
    found = figures["figures"]["accuracy"]
    assert found["mean"] == pytest.approx(6.5 / 11)
    assert found["median"] == 0.6
    assert found["worst_decile"] == pytest.approx((0.1 + 0.2) / 2)
    variance = sum((number / 10 - 6.5 / 11) ** 2 for number in [*range(1, 11), 10]) / 11
    assert found["spread"] == pytest.approx(variance**0.5)


def test_where_less_is_better_the_worst_is_the_largest() -> None:
    figures = summary(told([1.0, 2.0, 9.0], "rmse"), ERRORS)
    assert figures is not None and figures["figures"]["rmse"]["worst_decile"] == 9.0
    losses = {"a": Evaluation(num_samples=1, loss=0.5), "b": Evaluation(num_samples=1, loss=3.0)}
    figures = summary(losses, ACCURACY)
    assert figures is not None and figures["figures"]["loss"]["worst_decile"] == 3.0


def test_the_order_of_devices_changes_no_bit() -> None:
    numbers = random.Random(3)
    values = list(told([numbers.random() for _ in range(50)]).items())
    first = summary(dict(values), ACCURACY)
    numbers.shuffle(values)
    assert summary(dict(values), ACCURACY) == first


def test_one_device_that_lies_moves_no_median() -> None:
    honest = summary(told([0.8, 0.8, 0.8, 0.8], "rmse"), ERRORS)
    lied = summary(told([0.8, 0.8, 0.8, 0.8, 1e9], "rmse"), ERRORS)
    assert honest is not None and lied is not None
    assert lied["figures"]["rmse"]["median"] == honest["figures"]["rmse"]["median"]


def test_figures_of_too_few_devices_are_not_shown() -> None:
    assert summary({}, ACCURACY) is None
    assert summary(told([0.5] * 4), ACCURACY, least=5) is None
    some = told([0.5] * 4) | {"e": Evaluation(num_samples=4, loss=1.0)}
    figures = summary(some, ACCURACY, least=5)
    assert figures is not None and figures["figures"] == {}


@pytest.mark.parametrize(
    ("count", "share", "held"), [(1, 0.5, 0), (2, 0.1, 1), (3, 0.5, 2), (10, 0.1, 1), (100, 0.25, 25), (4, 0.5, 2)]
)
def test_one_sample_at_least_is_held_back_and_one_trained_on(count: int, share: float, held: int) -> None:
    assert held_back(count, share) == held


def test_every_so_many_rounds_from_the_first_on() -> None:
    assert [index for index in range(1, 8) if Evaluate(every=3).in_round(index)] == [1, 4, 7]
