"""What is measured of a round: averages, published models and the ensemble on the test set."""

from pathlib import Path
from typing import Any

from contract.architectures import is_server_side
from contract.groups import is_main
from contract.measures import main_figure
from contract.wire.federations import Task
from worker.pipeline.job import SERVER, Round
from worker.pipeline.metrics import further
from worker.pipeline.networks import build_network, measure, read_inputs, read_labels
from worker.specs import NetworkRef


def network_of(job: Round, name: str, weights: Path) -> NetworkRef:
    """Return the network of one of the round's models with weights of one's own."""
    if name == SERVER and job.spec.server_model is not None:
        return job.spec.server_model.network.model_copy(update={"weights": weights})
    return job.network(name, weights)


def evaluate(job: Round) -> None:
    """Measure averages and published models on the test set, where the service can run their networks.

    `accuracy`, of tasks with another main metric `measured` (and `metric`, its name), is that of what the recipe is
    for: the server's model of Fed-ET, the ensemble where nobody learns, else the mean over prototypes' main models.
    """
    path = job.spec.datasets.test
    runnable = {
        name for name in {*job.averages, *job.models} if is_server_side(network_of(job, name, Path()).architecture)
    }
    if path is None or not runnable:
        return
    task = job.spec.task
    inputs, labels = read_inputs(path, task, "test"), read_labels(path, "test", task)

    def measured(files: dict[str, Path]) -> dict[str, Any]:
        found = {}
        for name in (name for name in files if name in runnable):
            owner = f"prototype {name!r}"
            module = build_network(network_of(job, name, files[name]), task, job.device, owner=owner)
            found[name] = measure(module, inputs, labels, task, job.device, owner=owner)
        return of_prototypes(found, task)

    with job.phases.phase("evaluate", of=len(runnable)):
        if job.averages:
            job.metrics["average"] = measured(job.averages)
        job.metrics["model"] = job.metrics["average"] if job.models == job.averages else measured(job.models)
        if job.spec.metrics:
            networks = (
                (name, build_network(network_of(job, name, file), task, job.device, owner=repr(name)))
                for name, file in job.models.items()
                if name in runnable
            )
            job.metrics["further"] = further(networks, job.spec.metrics, inputs, labels, task, job.device)
    job.metrics |= headline(task, _value(job))


def of_prototypes(found: dict[str, dict[str, Any]], task: Task) -> dict[str, Any]:
    """Return what is noted of models by name: their main figures and the mean over the main models, and all figures."""
    values = {name: main_figure(task, figures) for name, figures in found.items()}
    main = [value for name, value in values.items() if is_main(name) and name != SERVER] or list(values.values())
    return {task.main_metric.key: sum(main) / len(main), "prototypes": values, "measures": found}


def headline(task: Task, value: float) -> dict[str, Any]:
    """Return a round's main figure: `accuracy`, or `measured` with the name of the task's `metric`."""
    metric = task.main_metric
    return {metric.key: value} if metric.key == "accuracy" else {metric.key: value, "metric": metric.name}


def _value(job: Round) -> float:
    distil, key = job.spec.recipe.distil, job.spec.task.main_metric.key
    model: dict[str, Any] = job.metrics["model"]
    if SERVER in model["prototypes"] and job.spec.server_model is not None:
        return float(model["prototypes"][SERVER])
    if distil is not None and not distil.students.learns:
        return float(job.metrics["ensemble"][key])
    return float(model[key])
