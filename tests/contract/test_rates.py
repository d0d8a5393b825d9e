"""Plans that vary: over rounds, between devices, by prototype."""

import math
from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from contract.choices import choices_of
from contract.federation import FederationConfig
from contract.local import Adam, LocalChanges, LocalPlan, ScaffoldObjective, Sgd
from contract.rates import PartialWork, RateChoice, RateCosine, RateExponential, RateSteps, factor_of, implements


def test_every_schedule_has_its_function_and_starts_at_the_rate_itself() -> None:
    assert implements.known() == frozenset(choices_of(RateChoice))
    assert [factor_of(each, 1, 7) for each in (RateSteps(), RateCosine(), RateExponential())] == [1.0, 1.0, 1.0]
    assert factor_of(None, 5, 7) == 1.0


def test_fedbes_rate_is_divided_by_ten_after_30_and_60_percent_of_its_40_rounds() -> None:
    plan = LocalPlan(optimizer=Sgd(lr=0.01), rate_over_rounds=RateSteps())
    rates = [plan.in_round(0, index, 40, "a").optimizer.lr for index in range(1, 41)]
    assert rates == pytest.approx([0.01] * 12 + [0.001] * 12 + [0.0001] * 16)


@pytest.mark.parametrize("total", range(1, 101))
def test_shares_of_rounds_are_exact(total: int) -> None:
    """In floats 0.07 of 100 rounds is 7.000000000000001: a drop would be a round late."""
    for percent in (7, 14, 28, 29, 30, 55, 56, 57, 58, 60):
        rate = RateSteps(at=(percent / 100,), factor=0.5)
        for index in range(1, total + 1):
            over = 100 * (index - 1) >= percent * total
            assert factor_of(rate, index, total) == (0.5 if over else 1.0)


def test_cosine_and_exponential_by_their_formulas() -> None:
    for index in range(1, 11):
        cosine = (1 + math.cos(math.pi * (index - 1) / 10)) / 2
        assert factor_of(RateCosine(), index, 10) == pytest.approx(cosine, rel=1e-14)
        assert factor_of(RateCosine(least=0.2), index, 10) == pytest.approx(0.2 + 0.8 * cosine, rel=1e-14)
        assert factor_of(RateExponential(factor=0.9), index, 10) == pytest.approx(0.9 ** (index - 1), rel=1e-14)
    assert factor_of(RateCosine(), 12, 10) == factor_of(RateCosine(), 10, 10) > 0


def test_a_rate_never_becomes_zero_which_no_device_would_take() -> None:
    plan = LocalPlan(rate_over_rounds=RateExponential(factor=1e-9))
    told = plan.in_round(0, 900, 1000, "a")
    assert LocalPlan.model_validate_json(told.model_dump_json()) == told


def test_partial_work_is_drawn_from_all_numbers_alike_and_by_names() -> None:
    partial = PartialWork()
    draws = [partial.draw(20, 7, index, f"client-{n}") for index in range(1, 41) for n in range(50)]
    counts = Counter(draws)
    assert sorted(counts) == list(range(1, 21))
    assert all(60 <= count <= 145 for count in counts.values()), "2,000 draws of 20: 100 each, sd 9.7"
    assert partial.draw(20, 7, 3, "client-4") == draws[2 * 50 + 4]
    assert PartialWork(least=5).draw(5, 7, 3, "x") == 5
    with pytest.raises(ValidationError, match=r"partial_work.least: 4 epochs at least, of 3"):
        LocalPlan(epochs=3, partial_work=PartialWork(least=4))


def test_what_a_device_is_told_is_a_plan_of_before() -> None:
    """A device of an older version refuses fields that it does not know."""
    plan = LocalPlan(epochs=9, rate_over_rounds=RateSteps(), partial_work=PartialWork())
    told = plan.in_round(3, 2, 10, "a").model_dump()
    assert set(told) == {"objective", "optimizer", "epochs", "batch_size", "clip_norm", "precision", "privacy"}
    assert LocalPlan().in_round(3, 2, 10, "a") == LocalPlan()


def config(*prototypes: dict[str, Any], **local: Any) -> FederationConfig:
    return FederationConfig.model_validate({
        "task": {"num_classes": 3, "input": {"shape": [2]}},
        "prototypes": [{"architecture": "mlp", **each} for each in prototypes],
        "recipe": {"name": "mine", "groups": {"kind": "random", "count": 2}},
        "local": local,
        "rounds": {"total": 10},
        "datasets": {},
    })  # fmt: skip


def test_a_prototypes_changes_are_laid_over_the_federations_plan_for_its_copies_too() -> None:
    found = config(
        {"name": "small"},
        {"name": "large", "local": {"epochs": 2, "optimizer": {"kind": "adam"}, "partial_work": {}}},
        epochs=5,
        batch_size=8,
        rate_over_rounds={"kind": "exponential", "factor": 0.5},
    )
    assert found.work_of(1, 3, "a", "small").epochs == 5
    for model in ("large", "large~1"):
        told = found.work_of(1, 3, "a", model)
        assert (told.batch_size, told.optimizer) == (8, Adam(lr=0.001 * 0.25))
        assert told.epochs == PartialWork().draw(2, 1, 3, "a")
    assert "local" not in found.prototype("large").model_dump()


def test_changes_that_do_not_go_with_the_objective_are_refused() -> None:
    plan = LocalPlan(objective=ScaffoldObjective())
    with pytest.raises(ValidationError, match="plain SGD"):
        plan.laid(LocalChanges(optimizer=Adam()))
    assert plan.laid(None) is plan
    assert plan.laid(LocalChanges(epochs=3)).epochs == 3
