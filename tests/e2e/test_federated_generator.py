"""FedGO without any data of the server's: the clients train the generator, whose samples are labelled (G3, D2)."""

from pathlib import Path

import pytest

from contract.tensors import TensorFile
from tools.deployment import NAMES, Deployment, add_server_data, federation_request, run_federation

SAMPLES = 60


@pytest.mark.slow
def test_clients_make_the_generator_whose_samples_are_distilled(deployment: Deployment, tmp_path: Path) -> None:
    add_server_data(deployment)
    options = {
        "schedule": {"epochs": 2},
        "data": {"kind": "generated", "count": SAMPLES},
        "generator": {"kind": "fedgan", "rounds": 2, "epochs": 1, "batch_size": 16},
        "plan": {"epochs": 1, "batch_size": 16},
        "link": "sigmoid",
    }
    recipe = {"name": "fedgo-small", "options": options}
    request = federation_request("fedgan", recipe, datasets={"test": "test"})
    federation, reports = run_federation(deployment, tmp_path, request)
    assert federation.state == "finished", f"{federation.error}: {federation.detail}"
    assert (federation.gan_round, federation.discriminators) == (3, len(NAMES))
    assert {report.rounds_trained for report in reports.values()} == {2}
    assert [index for index, _ in federation.accuracies] == [1, 2]
    models = deployment.operator.models(federation=federation.id, limit=100).items
    roles = sorted(model.role for model in models)
    assert roles == ["discriminator", "gan", "gan", "generator", "global", "global", "initial", "samples"]
    generator = next(model for model in models if model.role == "generator")
    assert generator.metrics["input_range"] == [0.0, 1.0]
    assert len(generator.parents) == len(NAMES)
    samples = next(model for model in models if model.role == "samples")
    blobs = (deployment.home / "blobs").rglob(samples.digest.removeprefix("sha256-"))
    with TensorFile(next(blobs)) as file:
        assert file.read("inputs").shape[0] == SAMPLES
    last = deployment.operator.round(deployment.operator.rounds(federation.id).items[-1].id)
    assert last.metrics["teacher_forwards"] == len(NAMES) * SAMPLES
    jobs = [job.kind for job in deployment.operator.jobs().items]
    assert sorted(jobs) == ["generator"] * 3 + ["initialize", "round", "round", "score"]
