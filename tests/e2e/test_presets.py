"""Built-in recipes run two rounds through the real service, on real devices: each way through it daily, all nightly."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from contract.local import LocalPlan
from contract.recipes.presets import PRESETS
from contract.tensors import check_file
from tools import tasks
from tools.deployment import Deployment, add_server_data, federation_request, run_federation

DAILY = (
    "fedadam", "scaffold", "fedma", "feddisco", "fedtgp", "fedbe", "one-shot-ensemble", "fedet", "fedsdd",
    "codistillation", "fedgo", "dafkd", "ds-fl", "fedgkd+", "reflux", "reflux-anchor",
)  # fmt: skip
SHORT = {"epochs": 1, "optimizer": {"kind": "sgd", "lr": 0.02}, "batch_size": 16}


def _small(name: str) -> dict[str, Any]:
    """Return the preset with little to do: one epoch, few steps, two groups."""
    recipe = PRESETS[name].recipe
    options: dict[str, Any] = {}
    if recipe.distil is not None:
        options["schedule"] = {"epochs": 1}
        if recipe.distil.schedule.swa is not None:
            options["schedule"]["swa"] = {"cycle": 1, "start": 1}
        if recipe.distil.members.kind == "posterior":
            options["members"] = {"samples": 2}
    if recipe.groups.kind == "random":
        options["groups"] = {"count": 2}
    if recipe.discriminators is not None:
        options["discriminators"] = {"generator": {"steps": 5}, "plan": {"epochs": 1, "batch_size": 16}}
    if name == "fedgo":  # its networks, but small ones of their kinds, for 8x8
        options["discriminators"]["generator"] |= {"options": {"latent": 8, "width": 4}, "critic_options": {"width": 4}}
        options["discriminators"]["plan"]["architecture"] = "disc-cnn-mlp"
    return {"name": name, "options": options}


def _local(name: str) -> dict[str, Any]:
    """Return the preset's own objective with a short plan."""
    plan = PRESETS[name].local.model_dump(mode="json") | SHORT
    return LocalPlan.model_validate(plan | {"clip_norm": None}).model_dump(mode="json")


def _ways(name: str) -> set[Any]:
    """Return what decides which jobs, files and phases a federation has; what is computed in them, others test."""
    recipe, objective = PRESETS[name].recipe, PRESETS[name].local.objective
    ways: set[Any] = {("groups", recipe.groups.kind), ("discriminators", recipe.discriminators is not None)}
    if (distil := recipe.distil) is not None:
        ways |= {("members", distil.members.kind), ("students", distil.students.kind), ("data", distil.data.kind)}
    for choice in (recipe.fuse, objective):
        ways |= {("carried", each.follows, each.sent) for each in choice.declares.carries}
        ways |= {("sent", each.when) for each in choice.declares.sends}
    return ways


def test_every_way_through_the_service_is_gone_daily() -> None:
    assert set().union(*map(_ways, DAILY)) == set().union(*map(_ways, PRESETS))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "names",
    [DAILY, pytest.param([name for name in PRESETS if name not in DAILY], marks=pytest.mark.chaos)],
    ids=["daily", "others"],
)
def test_two_rounds_of_every_preset(names: Sequence[str], deployment: Deployment, tmp_path: Path) -> None:
    add_server_data(deployment)
    for name in names:
        request = federation_request(name, _small(name), local=_local(name))
        if name == "fedet":
            request["prototypes"][0]["options"] = {"common_head": True}
            request["server_model"] = {
                "architecture": "cnn-digits",
                "options": {"common_head": True, "widths": [24, 48]},
            }
        if name == "fedma":
            request["prototypes"][0] |= {"architecture": "mlp", "options": {"hidden": [16]}}
        federation, reports = run_federation(deployment, tmp_path / name, request)
        assert federation.state == "finished", f"{name}: {federation.error}: {federation.detail}"
        rounds = deployment.operator.rounds(federation.id).items
        assert [each.state for each in rounds] == ["published", "published"], name
        assert len(federation.accuracies) == 2, name
        for report in reports.values():
            assert report.rounds_trained == 2, name
            assert report.model_path is not None
            check_file(report.model_path)
        _check_what_is_special(name, deployment, federation, rounds)


WITH_AGES = ("fedadam", "fedbe", "fedet", "fedgo", "reflux")
"""Of those that have a meaning there: each kind of reader of an update's age and base, daily."""
ALLOWED = [name for name in PRESETS if tasks.refusal("classification", name, {"mode": "buffered", "buffer": 3}) is None]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "names",
    [
        [name for name in ALLOWED if name in WITH_AGES],
        pytest.param([name for name in ALLOWED if name not in WITH_AGES], marks=pytest.mark.chaos),
    ],
    ids=["daily", "others"],
)
def test_two_buffers_of_every_preset_that_has_a_meaning_there(
    names: Sequence[str], deployment: Deployment, tmp_path: Path
) -> None:
    add_server_data(deployment)
    for name in names:
        rounds = {"total": 2, "min_clients": 3, "mode": "buffered", "buffer": 2}
        request = federation_request(name, _small(name), local=_local(name), rounds=rounds)
        if name == "fedet":
            request["prototypes"][0]["options"] = {"common_head": True}
            larger = {"common_head": True, "widths": [24, 48]}
            request["server_model"] = {"architecture": "cnn-digits", "options": larger}
        federation, _ = run_federation(deployment, tmp_path / name, request)
        assert federation.state == "finished", f"{name}: {federation.error}: {federation.detail}"
        found = deployment.operator.rounds(federation.id).items
        assert [each.state for each in found] == ["published", "published"], name
        assert all(each.answered >= 2 for each in found), name
        assert all(len(each.metrics["staleness"]) == each.answered for each in found), name


def _check_what_is_special(name: str, deployment: Deployment, federation: Any, rounds: list[Any]) -> None:
    models = {prototype: deployment.operator.model(ref.id) for prototype, ref in federation.models.items()}
    if PRESETS[name].recipe.groups.kind == "random":
        assert set(models) == {"main", "main~1"}
    elif name == "fedet":
        assert set(models) == {"main", "server"}
        assert models["server"].size > models["main"].size
    else:
        assert set(models) == {"main"}
    states = [m for m in deployment.operator.models(federation=federation.id, limit=200).items if m.role == "state"]
    keeps = {
        "fedavgm",
        "fedadam",
        "fedyogi",
        "fedadagrad",
        "scaffold",
        "fedgkd",
        "fedgkd+",
        "fedtgp",
        "fedsdd",
        "ds-fl",
    }
    if name in keeps:
        assert states, f"{name} keeps nothing between rounds"
    distil = PRESETS[name].recipe.distil
    if distil is not None and distil.members.kind == "clients" and distil.students.kind != "none":
        samples = getattr(distil.data, "count", 200) if distil.data.kind == "generated" else 200
        forwards = 0 if name == "ds-fl" else 3 * samples  # predictions are read, no teacher is run
        assert rounds[-1].metrics["teacher_forwards"] == forwards, name
