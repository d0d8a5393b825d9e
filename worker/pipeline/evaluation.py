"""What is measured of a round: averages, published models and the ensemble on the test set."""

from pathlib import Path
from typing import Any

from contract.architectures import is_server_side
from contract.groups import is_main
from worker.pipeline.job import SERVER, Round
from worker.pipeline.networks import accuracy, build_network, read_inputs, read_labels
from worker.specs import NetworkRef


def network_of(job: Round, name: str, weights: Path) -> NetworkRef:
    """Return the network of one of the round's models with weights of one's own."""
    if name == SERVER and job.spec.server_model is not None:
        return job.spec.server_model.network.model_copy(update={"weights": weights})
    return job.network(name, weights)


def evaluate(job: Round) -> None:
    """Measure averages and published models on the test set, where the service can run their networks.

    `accuracy` is that of what the recipe is for: the server's model of Fed-ET, the ensemble where nobody learns, else
    the mean over prototypes, of their main models.
    """
    path = job.spec.datasets.test
    runnable = {
        name for name in {*job.averages, *job.models} if is_server_side(network_of(job, name, Path()).architecture)
    }
    if path is None or not runnable:
        return
    inputs, labels = read_inputs(path, job.spec.task, "test"), read_labels(path, "test")

    def measure(files: dict[str, Path]) -> dict[str, Any]:
        found = {}
        for name in (name for name in files if name in runnable):
            owner = f"prototype {name!r}"
            module = build_network(network_of(job, name, files[name]), job.spec.task, job.device, owner=owner)
            found[name] = accuracy(module, inputs, labels, job.device, owner=owner)
        main = [value for name, value in found.items() if is_main(name) and name != SERVER] or list(found.values())
        return {"accuracy": sum(main) / len(main), "prototypes": found}

    with job.phases.phase("evaluate", of=len(runnable)):
        if job.averages:
            job.metrics["average"] = measure(job.averages)
        job.metrics["model"] = job.metrics["average"] if job.models == job.averages else measure(job.models)
    job.metrics["accuracy"] = _headline(job)


def _headline(job: Round) -> float:
    distil = job.spec.recipe.distil
    model: dict[str, Any] = job.metrics["model"]
    if SERVER in model["prototypes"] and job.spec.server_model is not None:
        return float(model["prototypes"][SERVER])
    if distil is not None and not distil.students.learns:
        return float(job.metrics["ensemble"]["accuracy"])
    return float(model["accuracy"])
