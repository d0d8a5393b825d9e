"""Filters: received models that are left out before anything is averaged or labelled."""

from worker.parts.filters import drop_worst
from worker.pipeline.blame import blame
from worker.pipeline.job import Round
from worker.pipeline.networks import build_network, measure, read_inputs, read_labels
from worker.specs import JobFailure


def leave_out_worst(job: Round) -> None:
    """Leave out models no better than chance on the validation set (FedDF 4.2); if all are, all stay.

    Figures: `drop_worst` with `accuracy` per client, `threshold`, `dropped` and `all_dropped`.

    Raises:
        JobFailure: bad_option without a validation set; non_finite, naming the client.
    """
    rule, path = job.spec.recipe.drop_worst, job.spec.datasets.validation
    if rule is None:
        return
    if path is None:
        raise JobFailure("bad_option", "drop_worst needs a validation set: datasets.validation")
    inputs, labels = read_inputs(path, job.spec.task, "validation"), read_labels(path, "validation", job.spec.task)
    found: dict[str, float] = {}
    participants = job.participants
    with job.phases.phase("validate", of=len(participants)):
        for done, update in enumerate(participants, start=1):
            owner = f"update of {update.client!r}"
            network = job.network(update.prototype, update.model)
            with blame(update.client):
                module = build_network(network, job.spec.task, job.device, owner=owner)
                figures = measure(module, inputs, labels, job.spec.task, job.device, owner=owner)
                found[update.client] = figures["accuracy"]
            job.phases.step(done)
    kept = drop_worst(list(found.values()), job.spec.task.num_classes, rule.factor)
    staying = {participants[index].client for index in kept.kept}
    job.updates = {
        name: stay
        for name, updates in job.updates.items()
        if (stay := [each for each in updates if each.client in staying])
    }
    job.metrics["drop_worst"] = {
        "accuracy": found,
        "threshold": kept.threshold,
        "dropped": [client for client in found if client not in staying],
        "all_dropped": kept.all_dropped,
    }
