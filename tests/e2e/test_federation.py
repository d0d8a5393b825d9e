"""The whole way: devices train and upload over a socket, a worker process fuses, everybody sees the result."""

from pathlib import Path
from typing import Any

import pytest

from contract.tensors import check_file
from contract.wire.federations import Federation
from contract.wire.report import Bytes, FederationReport
from tools.deployment import Deployment, add_server_data, federation_request, run_federation


@pytest.mark.slow
def test_average_distil_and_weigh_by_odds(deployment: Deployment, tmp_path: Path) -> None:
    add_server_data(deployment)
    odds = {
        "schedule": {"epochs": 2},
        "generator": {"steps": 20},
        "plan": {"epochs": 3, "batch_size": 16},
        "link": "sigmoid",
    }
    recipes: list[dict[str, Any]] = [
        {"name": "fedavg"},
        {"name": "feddf", "options": {"schedule": {"epochs": 2}}},
        {"name": "fedgo-small", "options": odds},
    ]
    costs = []
    for recipe in recipes:
        request = federation_request(recipe["name"], recipe)
        federation, reports = run_federation(deployment, tmp_path / recipe["name"], request)
        assert federation.state == "finished"
        assert [index for index, _ in federation.accuracies] == [1, 2]
        for report in reports.values():
            assert report.rounds_trained == 2
            assert report.model_path is not None
            check_file(report.model_path)
        costs.append(_check_costs(deployment, federation, recipe["name"]))
        rounds = deployment.operator.rounds(federation.id).items
        assert [each.state for each in rounds] == ["published", "published"]
        shown = deployment.operator.round(rounds[-1].id)
        assert sum(person.weight or 0 for person in shown.participants) == pytest.approx(1)
        assert {person.num_samples for person in shown.participants} == {60, 70, 80}
        if recipe["name"] == "fedgo-small":
            assert sum(person.teacher_weight or 0 for person in shown.participants) == pytest.approx(1, abs=1e-5)
            assert federation.discriminators == 3
    deployment.kill("api")
    deployment.start_api()
    assert [deployment.operator.report(each.federation_id) for each in costs] == costs, "what was told is lost"
    jobs = deployment.operator.jobs().items
    assert {job.state for job in jobs} == {"done"}
    blobs = [path for path in (deployment.home / "blobs").rglob("*") if path.is_file()]
    named = {model.digest for model in deployment.operator.models(limit=100).items}
    assert len([path for path in blobs if f"sha256-{path.name}" in named]) == len(named)
    assert not list((deployment.home / "blobs" / "tmp").iterdir()), "uploads or outputs were left behind"


def _check_costs(deployment: Deployment, federation: Federation, recipe: str) -> FederationReport:
    """Three devices fetch and send one file each in each of two rounds, and nothing goes wrong on the way."""
    found = deployment.operator.report(federation.id)
    model = federation.models["main"].size
    for each in found.rounds:
        assert each.wire == each.files
        assert (each.devices, each.answered, each.files.down) == (3, 3, 3 * model)
        assert each.files.up > 3 * model, "updates have metadata of their own"
        assert 0 < each.seconds.slowest <= each.seconds.devices
        assert 0 < sum(each.seconds.phases.values()) <= each.seconds.jobs + 0.01
        assert each.flops is not None
        assert each.flops.training == 210 * 2 * (found.networks[0].training_flops or 0), "samples, epochs"
        assert (each.flops.distillation > 0, each.flops.labelling > 0) == (recipe != "fedavg",) * 2
    assert found.before.flops is not None
    assert (found.before.flops.discriminators > 0) == (recipe == "fedgo-small")
    assert found.afterwards == Bytes(down=3 * model)
    assert found.before.wire == found.before.files
    assert (found.before.files.down > 0) == (recipe == "fedgo-small")
    return found


@pytest.mark.slow
def test_same_seed_same_bytes_in_another_service(deployment: Deployment, tmp_path: Path) -> None:
    """Two federations of one seed, other ids, other arrival order: every published model is the same file."""
    add_server_data(deployment)
    recipe = {"name": "feddf", "options": {"schedule": {"epochs": 2}}}
    digests = []
    for name in ("first", "second"):
        federation, _ = run_federation(deployment, tmp_path / name, federation_request(name, recipe))
        models = deployment.operator.models(federation=federation.id).items
        digests.append([model.digest for model in models])
    assert digests[0] == digests[1]
    assert len(digests[0]) == 3
