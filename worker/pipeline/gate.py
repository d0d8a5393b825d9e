"""The gate's figures: new models beside those that they would replace, on one labelled set."""

from pathlib import Path

from contract.architectures import is_server_side
from worker.pipeline.evaluation import network_of
from worker.pipeline.job import SERVER, Round
from worker.pipeline.networks import build_network, main_measure, read_inputs, read_labels
from worker.specs import JobFailure


def measure(job: Round) -> None:
    """Measure every new model and the current one in its place. Whether it is published is the service's decision.

    Figures: `gate` with `metric` and, per model, `before` and `after`.

    Raises:
        JobFailure: bad_option without the set, or for a network that cannot be run here; non_finite.
    """
    gate = job.spec.gate
    assert gate is not None and gate.role is not None
    role = gate.role
    path: Path | None = getattr(job.spec.datasets, role)
    if path is None:
        raise JobFailure("bad_option", f"the gate needs a labelled set: datasets.{role}")
    inputs, labels = read_inputs(path, job.spec.task, role), read_labels(path, role, job.spec.task)

    def measured(name: str, weights: Path) -> float:
        network, owner = network_of(job, name, weights), f"prototype {name!r}"
        if not is_server_side(network.architecture):
            raise JobFailure("bad_option", f"{owner}: the gate cannot run {network.architecture!r}")
        module = build_network(network, job.spec.task, job.device, owner=owner)
        return main_measure(module, inputs, labels, job.spec.task, job.device, owner=owner)

    with job.phases.phase("gate", of=len(job.models)):
        found = {}
        for done, (name, weights) in enumerate(sorted(job.models.items()), start=1):
            found[name] = {"before": measured(name, _base(job, name)), "after": measured(name, weights)}
            job.phases.step(done)
    job.metrics["gate"] = {"metric": gate.metric, "models": found}


def _base(job: Round, name: str) -> Path:
    server = job.spec.server_model
    if name == SERVER and server is not None:
        assert server.network.weights is not None
        return server.network.weights
    return job.base(name)
