"""Every choice of every part has a function, and a round that runs it."""

import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from contract import local
from contract.local import LocalPlan
from contract.recipes import parts, presets
from worker.parts.weigh import LOG_WEIGHTS
from worker.pipeline import data, distil, fusing, generators, labels, sends, students, teachers, tgp

SHORT = {"schedule": {"epochs": 2, "batch_size": 8, "optimizer": {"kind": "adam"}}}
POSTERIOR = {"kind": "posterior", "samples": 2}
HEADS: dict[str, Any] = {"hidden": [6], "common_head": True}


def choices(union: Any) -> set[type]:
    """Return the options models of an annotated union."""
    inner = typing.get_args(union)[0]
    return set(typing.get_args(inner)) or {inner}


TABLES: list[tuple[Any, Mapping[type, Any]]] = [
    (parts.Groups, fusing.GROUPS),
    (parts.Fuse, fusing.FUSE),
    (parts.Members, teachers.MEMBERS),
    (parts.MembersPosterior.model_fields["posterior"].annotation, teachers.SAMPLES),
    (parts.Weigh, LOG_WEIGHTS),
    (parts.Combine, labels.COMBINE),
    (parts.DistilObjective, distil.OBJECTIVES),
    (parts.Students, students.STUDENTS),
    (parts.Data, data.DATA),
    (parts.Generator, generators.GENERATORS),
    (local.Objective, sends.SENDS),
]


@pytest.mark.parametrize(("union", "table"), TABLES, ids=lambda each: "" if isinstance(each, Mapping) else None)
def test_every_choice_has_its_function_and_no_function_is_left_over(union: Any, table: Mapping[type, Any]) -> None:
    found = set(typing.get_args(union)) if typing.get_origin(union) is typing.Union else None
    wanted = choices(union) if hasattr(union, "__metadata__") else found or set(typing.get_args(union))
    assert set(table) == wanted


def test_every_union_of_the_parts_is_looked_at() -> None:
    unions = {name for name in dir(parts) if hasattr(getattr(parts, name), "__metadata__")}
    assert unions == {
        "Groups", "Fuse", "Members", "Weigh", "WeighSimple", "Combine", "DistilObjective", "Students", "Data",
        "Generator",
    }  # fmt: skip


def fuse(kind: str, **options: Any) -> dict[str, Any]:
    return {"recipe": "fedavg", "options": {"fuse": {"kind": kind, **options}}}


def feddf(**changes: Any) -> dict[str, Any]:
    return {"recipe": "feddf", "options": SHORT | changes}


def fedgo(**changes: Any) -> dict[str, Any]:
    return {"recipe": "fedgo", "options": SHORT | changes}


RANDOM = {"kind": "random", "count": 2}
GROUPED = {"groups": RANDOM, "members": {"kind": "groups", "rounds": 2}}
FEDET = {"recipe": "fedet", "options": SHORT, "heads": True}
CASES: dict[type, dict[str, Any]] = {
    parts.GroupsPrototype: fuse("weighted_mean"),
    parts.GroupsRandom: {"recipe": "fedavg", "options": {"groups": RANDOM}},
    parts.FuseWeightedMean: fuse("weighted_mean"),
    parts.FuseUniformMean: fuse("uniform_mean"),
    parts.FuseMomentum: fuse("momentum"),
    parts.FuseAdam: fuse("adam"),
    parts.FuseYogi: fuse("yogi"),
    parts.FuseAdagrad: fuse("adagrad"),
    parts.FuseScaffold: {"recipe": "scaffold", "options": {}},
    parts.FuseDisco: fuse("disco"),
    parts.FuseMedian: fuse("median"),
    parts.FuseTrimmedMean: fuse("trimmed_mean", trim=0.2),
    parts.FuseKrum: fuse("krum", byzantine=1, keep=2),
    parts.FuseClippedMean: fuse("clipped_mean", max_norm=0.5),
    parts.FusePredictions: {"recipe": "ds-fl", "options": SHORT},
    parts.MembersClients: feddf(),
    parts.MembersGroups: feddf(**GROUPED),
    parts.MembersPosterior: feddf(members=POSTERIOR),
    parts.SampleGaussian: feddf(members=POSTERIOR | {"posterior": {"kind": "gaussian"}}),
    parts.SampleDirichlet: feddf(members=POSTERIOR | {"posterior": {"kind": "dirichlet"}, "sample_batch_norm": False}),
    parts.SampleSwag: feddf(members=POSTERIOR | {"posterior": {"kind": "swag"}, "clients": False, "mean": False}),
    parts.WeighUniform: feddf(),
    parts.WeighSamples: feddf(weigh={"kind": "samples"}),
    parts.WeighVariance: feddf(weigh={"kind": "variance", "space": "logits"}),
    parts.WeighEntropy: feddf(weigh={"kind": "entropy", "tau": 0.5}),
    parts.WeighDafkd: fedgo(weigh={"kind": "dafkd"}),
    parts.WeighOdds: fedgo(),
    parts.WeighProduct: fedgo(weigh={"kind": "product", "factors": [{"kind": "odds"}, {"kind": "entropy"}]}),
    parts.CombineLogits: feddf(),
    parts.CombineProbs: feddf(combine={"kind": "probs", "sharpen": 2.0}),
    parts.CombineEra: feddf(combine={"kind": "era"}),
    parts.CombineConsensus: FEDET,
    parts.ObjectiveKl: feddf(objective={"kind": "kl", "temperature": 4.0}),
    parts.ObjectiveSoftCe: feddf(objective={"kind": "soft_ce"}),
    parts.ObjectiveFedEt: FEDET,
    parts.StudentsPrototypes: feddf(students={"kind": "prototypes", "batch_norm": "recalibrate"}),
    parts.StudentsMain: feddf(**GROUPED, students={"kind": "main"}),
    parts.StudentsServer: FEDET,
    parts.StudentsAll: feddf(**GROUPED, students={"kind": "all"}),
    parts.StudentsNone: feddf(students={"kind": "none"}),
    parts.DataUnlabeled: feddf(data={"kind": "unlabeled", "augment": {"flip": True, "pad": 1}}),
    parts.DataGenerated: fedgo(data={"kind": "generated", "count": 21}),
    parts.DataNoise: feddf(data={"kind": "noise", "count": 10, "low": -1.0}),
}


@pytest.mark.parametrize("choice", CASES, ids=lambda choice: choice.__name__)
def test_a_round_of_every_choice_is_finite_and_repeats_itself_in_any_order(
    choice: type, tmp_path: Path, federation: Any, repeatable: Callable[[Any], Any]
) -> None:
    case = CASES[choice]
    recipe = presets.build(case["recipe"], case["options"])
    plan = presets.PRESETS[case["recipe"]].local
    heads = {"architecture": "mlp", "options": HEADS} if case.get("heads") else None
    world = federation(tmp_path, recipe, plan, {"main": heads} if heads else None, heads)
    used = str(recipe.model_dump(mode="json"))
    assert f"'{choice.model_fields['kind'].default}'" in used  # type: ignore[attr-defined]
    result = repeatable(world)
    assert 0 <= result.metrics["accuracy"] <= 1


def test_every_choice_has_a_case() -> None:
    wanted = {choice for _, table in TABLES[:-2] for choice in table}
    assert set(CASES) == wanted


@pytest.mark.parametrize("objective", sorted(choices(local.Objective), key=str), ids=lambda each: each.__name__)
def test_a_round_of_every_objective(
    objective: type,
    tmp_path: Path,
    federation: Any,
    repeatable: Callable[[Any], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tgp, "EPOCHS", 20)
    special = {local.ScaffoldObjective: ("scaffold", {}), local.DsFlObjective: ("ds-fl", SHORT)}
    recipe = presets.build(*special.get(objective, ("fedavg", {})))
    result = repeatable(federation(tmp_path, recipe, LocalPlan(objective=objective())))
    sent = {key for key in result.state or {} if key.startswith("send.")}
    assert sent == {
        local.ScaffoldObjective: {"send.control.main"},
        local.FedGkdObjective: {"send.teacher.main"},
        local.FedTgpObjective: {"send.prototypes"},
        local.DsFlObjective: {"send.public", "send.targets"},
    }.get(objective, set())
