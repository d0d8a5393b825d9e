"""Every choice of every part has a function, and a round that runs it."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.choices import Choice, carried, choices_of, kind_of, slots
from contract.local import SENT_PUBLIC, SENT_TARGETS, ClientObjective, FedTgpObjective, LocalPlan
from contract.recipes import parts, presets
from worker.registry import implements

SHORT = {"schedule": {"epochs": 2, "batch_size": 8, "optimizer": {"kind": "adam"}}}
POSTERIOR = {"kind": "posterior", "samples": 2}
HEADS: dict[str, Any] = {"hidden": [6], "common_head": True}


for asked in ("fusing", "extras", "teachers", "labels", "students", "data", "distil", "generators", "metrics"):
    importlib.import_module(f"worker.pipeline.{asked}")  # what a round asks, and nothing beside it
FEW: dict[type[ClientObjective], dict[str, Any]] = {FedTgpObjective: {"server_epochs": 20}}
ELSEWHERE = {"optimizer", "local.precision", "local.rate_over_rounds"}
HERE = {slot: found for slot, found in slots().items() if slot not in ELSEWHERE}
"""Slots that the worker asks; the others' choices are carried out by `contract` and by devices alone."""


def answered(choice: type[Choice]) -> bool:
    """Whether the worker has something to do for a choice: not where no weights come, nor where devices do it all."""
    if issubclass(choice, parts.FuseChoice):
        return choice.averages
    made = {each for each in choice.declares.carries if each.follows != "devices"} - {SENT_PUBLIC, SENT_TARGETS}
    return not issubclass(choice, ClientObjective) or bool(made)


@pytest.mark.parametrize("slot", HERE)
def test_every_choice_has_its_function(slot: str) -> None:
    for choice in HERE[slot]:
        said = f"{choice.__name__}: is @implements above its function, in a module that rounds import?"
        assert (choice in implements.known()) == answered(choice), said


def test_no_function_is_left_over() -> None:
    assert implements.known() <= {choice for found in HERE.values() for choice in found}


def fuse(kind: str, **options: Any) -> dict[str, Any]:
    return {"recipe": "fedavg", "options": {"fuse": {"kind": kind, **options}}}


def feddf(**changes: Any) -> dict[str, Any]:
    return {"recipe": "feddf", "options": SHORT | changes}


def fedgo(**changes: Any) -> dict[str, Any]:
    return {"recipe": "fedgo-small", "options": SHORT | changes}


RANDOM = {"kind": "random", "count": 2}
GROUPED = {"groups": RANDOM, "members": {"kind": "groups", "rounds": 2}}
FEDET = {"recipe": "fedet", "options": SHORT, "heads": True}
SPECIAL: dict[type, dict[str, Any]] = {
    parts.GroupsRandom: {"recipe": "fedavg", "options": {"groups": RANDOM}},
    parts.FuseScaffold: {"recipe": "scaffold", "options": {}},
    parts.FuseTrimmedMean: fuse("trimmed_mean", trim=0.2),
    parts.FuseKrum: fuse("krum", byzantine=1, keep=2),
    parts.FuseClippedMean: fuse("clipped_mean", max_norm=0.5),
    parts.FusePredictions: {"recipe": "ds-fl", "options": SHORT},
    parts.FuseJointMean: {"recipe": "dafkd", "options": SHORT | {"warmup_rounds": 0, "count": 9}},
    parts.MembersGroups: feddf(**GROUPED),
    parts.MembersPosterior: feddf(members=POSTERIOR),
    parts.SampleGaussian: feddf(members=POSTERIOR | {"posterior": {"kind": "gaussian"}}),
    parts.SampleDirichlet: feddf(members=POSTERIOR | {"posterior": {"kind": "dirichlet"}, "sample_batch_norm": False}),
    parts.SampleSwag: feddf(members=POSTERIOR | {"posterior": {"kind": "swag"}, "clients": False, "mean": False}),
    parts.WeighVariance: feddf(weigh={"kind": "variance", "space": "logits"}),
    parts.WeighEntropy: feddf(weigh={"kind": "entropy", "tau": 0.5}),
    parts.MembersBank: fedgo(members={"kind": "bank"}, weigh={"kind": "balanced_odds"}),
    parts.WeighProduct: fedgo(weigh={"kind": "product", "factors": [{"kind": "odds"}, {"kind": "entropy"}]}),
    parts.CombineProbs: feddf(combine={"kind": "probs", "sharpen": 2.0}),
    parts.CombineConsensus: FEDET,
    parts.ObjectiveKl: feddf(objective={"kind": "kl", "temperature": 4.0}),
    parts.ObjectiveFedEt: FEDET,
    parts.StudentsPrototypes: feddf(students={"kind": "prototypes", "batch_norm": "recalibrate"}),
    parts.StudentsMain: feddf(**GROUPED, students={"kind": "main"}),
    parts.StudentsServer: FEDET,
    parts.StudentsPrototypesAndServer: feddf(students={"kind": "prototypes_and_server"}) | {"server": True},
    parts.StudentsAll: feddf(**GROUPED, students={"kind": "all"}),
    parts.DataUnlabeled: feddf(data={"kind": "unlabeled", "augment": {"flip": True, "pad": 1}}),
    parts.DataGenerated: fedgo(data={"kind": "generated", "count": 21}),
    parts.DataNoise: feddf(data={"kind": "noise", "count": 10, "low": -1.0}),
}


def case_of(choice: type[Choice]) -> dict[str, Any]:
    """Return a recipe with a choice, as it is by default: one that is added is tried without a word here."""
    if choice in SPECIAL:
        return SPECIAL[choice]
    given = {"kind": kind_of(choice)}
    if choice.slot in ("fuse", "groups"):
        return {"recipe": "fedavg", "options": {choice.slot: given}}
    base = fedgo if "scores" in choice.declares.needs else feddf
    return base(**{choice.slot.removeprefix("distil."): given})


ROUNDS = [choice for slot, found in HERE.items() if slot.startswith(("fuse", "groups", "distil")) for choice in found]


@pytest.mark.parametrize("choice", ROUNDS, ids=lambda choice: choice.__name__)
def test_a_round_of_every_choice_is_finite_and_repeats_itself_in_any_order(
    choice: type[Choice], tmp_path: Path, federation: Any, repeatable: Callable[[Any], Any]
) -> None:
    case = case_of(choice)
    recipe = presets.build(case["recipe"], case["options"])
    plan = presets.PRESETS[case["recipe"]].local
    heads = {"architecture": "mlp", "options": HEADS} if case.get("heads") else None
    server = heads or ({"architecture": "mlp", "options": {"hidden": [9]}} if case.get("server") else None)
    world = federation(tmp_path, recipe, plan, {"main": heads} if heads else None, server)
    used = str(recipe.model_dump(mode="json"))
    assert f"'{kind_of(choice)}'" in used
    result = repeatable(world)
    assert 0 <= result.metrics["accuracy"] <= 1


@pytest.mark.parametrize("objective", choices_of(ClientObjective), ids=lambda each: each.__name__)
def test_a_round_of_every_objective(
    objective: type[ClientObjective],
    tmp_path: Path,
    federation: Any,
    repeatable: Callable[[Any], Any],
) -> None:
    partner = objective.declares.partner
    rows = {row.recipe.fuse.kind: name for name, row in presets.PRESETS.items()}
    name = rows[partner.kind] if partner else "fedavg"
    recipe = presets.build(name, SHORT if name == "ds-fl" else {})
    result = repeatable(
        federation(tmp_path, recipe, LocalPlan(objective=objective.model_validate(FEW.get(objective, {}))))
    )
    sent = {carried(key)[0] for key in result.state or {}}
    assert {each.name for each in sent if each is not None and each.sent} == set(objective.declares.reads)
