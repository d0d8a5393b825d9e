"""What a simulation decides between rounds; figures and files by hand, none is read."""

from pathlib import Path
from typing import Any

import pytest

from contract.federation import FederationConfig
from contract.local import LocalPlan
from contract.recipes.presets import build
from contract.wire.federations import DatasetRefs, Prototype, Task
from contract.wire.plans import RoundsPlan
from potstill.simulate.history import Participation, RoundRecord
from potstill.simulate.lifecycle import Lifecycle, RoundDone
from service.domain.rounds import Decision
from worker.specs import JobResult

FUSE = Decision("aggregate")
GATE: dict[str, Any] = {"metric": "test_accuracy", "max_drop": 0.1}


def begun(*names: str, **rounds: Any) -> Lifecycle:
    config = FederationConfig(
        task=Task.model_validate({"num_classes": 3, "input": {"shape": [2]}}),
        prototypes=[Prototype(name=name, architecture="mlp") for name in names],
        recipe=build("fedavgm"),
        local=LocalPlan(),
        rounds=RoundsPlan.model_validate({"total": 9} | rounds),
        datasets=DatasetRefs(),
    )
    models = {name: Path(f"{name}-0") for name in names}
    return Lifecycle(config, RoundRecord(index=0, models=models, accuracy=0.2), {})


def fused(lifecycle: Lifecycle, state: dict[str, str] | None = None, **figures: tuple[float, float]) -> RoundRecord:
    """Go through a round; `figures` are what the gate measured, before and after; `state` is name -> content."""
    index = lifecycle.record.index + 1
    measured = {name: {"before": before, "after": after} for name, (before, after) in figures.items()}
    result = JobResult(
        models={name: Path(f"{name}-{index}") for name in figures},
        state=None if state is None else {name: Path(f"{name}-{index}") for name in state},
        metrics={"accuracy": 0.5, "gate": {"metric": "test_accuracy", "models": measured}},
    )
    return lifecycle.accept(RoundDone([], result, state or {}, 1.0), FUSE)


def test_a_rejected_model_changes_nothing_and_the_round_counts_as_skipped() -> None:
    lifecycle = begun("main", gate=GATE, max_skipped=2)
    fused(lifecycle, {"velocity.main": "one"}, main=(0.2, 0.8))
    record = fused(lifecycle, {"velocity.main": "two"}, main=(0.8, 0.6))
    assert (record.outcome, record.published, record.accuracy) == ("skipped", [], None)
    assert record.models == {"main": Path("main-1")} and record.state == {"velocity.main": Path("velocity.main-1")}
    assert record.metrics["gate"]["models"]["main"]["passed"] is False
    assert record.reason == "gate_rejected: test accuracy of 'main' fell from 0.8000 to 0.6000, by more than 0.1"
    assert lifecycle.ending() is None
    fused(lifecycle, main=(0.8, 0.6))
    ending = lifecycle.ending()
    assert ending is not None and (ending.state, ending.error) == ("paused", "rounds_skipped")


def test_models_are_judged_alone() -> None:
    lifecycle = begun("large", "small", gate=GATE, target_accuracy=0.4)
    record = fused(lifecycle, large=(0.8, 0.2), small=(0.3, 0.4))
    assert (record.outcome, record.published) == ("published", ["small"])
    assert record.models == {"large": Path("large-0"), "small": Path("small-1")}
    assert record.accuracy is None, "the measured accuracy is of a model that nobody gets"
    assert lifecycle.ending() is None, "and it is no target reached"
    fused(lifecycle, large=(0.8, 0.8), small=(0.4, 0.4))
    ending = lifecycle.ending()
    assert ending is not None and ending.state == "finished"


def test_a_rollback_goes_to_the_best_and_forgets_what_was_kept_since() -> None:
    lifecycle = begun("main", gate=GATE | {"action": "rollback"})
    fused(lifecycle, {"velocity.main": "one"}, main=(0.2, 0.8))
    fused(lifecycle, {"velocity.main": "two"}, main=(0.8, 0.75))
    assert lifecycle.files(keep_models=False) == {Path("main-2"), Path("main-1"), Path("velocity.main-2")}
    record = fused(lifecycle, {"velocity.main": "three"}, main=(0.75, 0.3))
    assert record.models == {"main": Path("main-1")} and record.state == {}
    assert record.metrics["gate"]["rolled_back"] == {"main": 1}
    assert fused(lifecycle, main=(0.8, 0.8)).models == {"main": Path("main-4")}, "it goes on from there"


def test_a_rollback_keeps_what_was_made_up_to_its_round() -> None:
    """The same content again is what was there: it was made when it first came."""
    lifecycle = begun("main", gate=GATE | {"action": "rollback"})
    fused(lifecycle, {"velocity.main": "one"}, main=(0.2, 0.8))
    fused(lifecycle, {"velocity.main": "one"}, main=(0.8, 0.75))
    record = fused(lifecycle, {"velocity.main": "two"}, main=(0.75, 0.3))
    assert list(record.state) == ["velocity.main"]


def test_a_gate_that_pauses_ends_the_simulation() -> None:
    lifecycle = begun("main", gate=GATE | {"action": "pause"})
    fused(lifecycle, main=(0.8, 0.2))
    ending = lifecycle.ending()
    assert ending is not None and (ending.state, ending.error) == ("paused", "gate_rejected")


@pytest.mark.parametrize(
    ("plan", "outcome", "state", "error"),
    [
        ({"total": 1}, "skipped", "failed", "too_few_updates"),
        ({"on_deadline": "fail"}, "failed", "paused", "too_few_updates"),
        ({"on_deadline": "extend", "max_skipped": 1}, "skipped", "paused", "rounds_skipped"),
    ],
)
def test_too_few_updates(plan: dict[str, Any], outcome: str, state: str, error: str) -> None:
    lifecycle = begun("main", min_updates=3, **plan)
    decision = lifecycle.closing(asked=2, enrolled=4)
    record = lifecycle.accept(
        RoundDone([Participation(client="a", prototype="main", num_samples=1)], None, {}, 1.0), decision
    )
    assert (record.outcome, record.published, record.models) == (outcome, [], {"main": Path("main-0")})
    assert record.reason is not None and "got 2 of 3 updates" in record.reason
    ending = lifecycle.ending()
    assert ending is not None and (ending.state, ending.error) == (state, error)


def test_who_was_left_out_is_noted() -> None:
    lifecycle = begun("main")
    participants = [Participation(client=name, prototype="main", num_samples=1) for name in ("a", "b")]
    result = JobResult(models={"main": Path("main-1")}, metrics={"excluded": {"b": "non_finite: look"}})
    record = lifecycle.accept(RoundDone(participants, result, {}, 1.0), FUSE)
    assert [part.excluded for part in record.participants] == [None, "non_finite: look"]
