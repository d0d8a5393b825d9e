"""FedGO with discriminators that give probabilities: the link `prob` from the assignment to the weights."""

from pathlib import Path

import pytest

from client_sdk.errors import InvalidField
from contract.tensors import TensorFile
from contract.wire.federations import FederationCreate
from tools.deployment import NAMES, Deployment, add_server_data, federation_request, run_federation

PLAN = {"epochs": 2, "batch_size": 16, "options": {"output": "probability"}}
OPTIONS = {"link": "prob", "schedule": {"epochs": 1}, "generator": {"steps": 5}, "plan": PLAN}


@pytest.mark.slow
def test_two_rounds_weighed_by_probabilities(deployment: Deployment, tmp_path: Path) -> None:
    add_server_data(deployment)
    with pytest.raises(InvalidField, match="output to 'probability'"):
        raw = federation_request("raw", {"name": "fedgo-small", "options": {"link": "prob"}})
        deployment.operator.create_federation(FederationCreate.model_validate(raw))
    request = federation_request("prob", {"name": "fedgo-small", "options": OPTIONS})
    federation, reports = run_federation(deployment, tmp_path, request)
    assert federation.state == "finished", f"{federation.error}: {federation.detail}"
    assert federation.discriminators == len(NAMES)
    assert {report.rounds_trained for report in reports.values()} == {2}
    rounds = deployment.operator.rounds(federation.id).items
    assert [each.state for each in rounds] == ["published", "published"]
    for each in rounds:
        people = deployment.operator.round(each.id).participants
        assert sum(person.teacher_weight or 0 for person in people) == pytest.approx(1, abs=1e-5)
    scores = []
    for path in (deployment.home / "blobs").rglob("*"):
        if path.is_file():
            with TensorFile(path) as file:
                scores += [file.read("unlabeled")] if "unlabeled" in file.names else []
    assert len(scores) == len(NAMES)
    assert all(0 <= found.min() < found.max() <= 1 for found in scores)
