"""Why a round came out as it did: where each client's update points to, what its model says, who is trusted on what.

It reads what the round has in hand, changes no model, and asks networks only where the round has run some anyhow.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from contract.architectures import is_server_side
from contract.groups import is_main
from worker.parts import flags
from worker.parts.arrays import Float
from worker.parts.blocks import Source
from worker.parts.directions import Direction, changes_of
from worker.parts.errors import PartError
from worker.parts.votes import Agreement, Ints, agreement, consensus, decided, trust_by_class, votes_of
from worker.parts.weigh import normalise
from worker.pipeline.heard import Heard, Together, rows_of
from worker.pipeline.job import Round, Update
from worker.pipeline.samples import strip
from worker.registry import implements
from worker.specs import JobFailure

if TYPE_CHECKING:
    from torch import Tensor, nn

log = logging.getLogger(__name__)

MOST_CELLS = 20_000
"""Clients times classes: tables of more are left out."""
MOST_LEFT_OUT = 64
"""Clients: of more nobody is left out in turn, which costs their square."""

Figures = dict[str, dict[str, Any]]
"""By client."""


def explain(job: Round) -> None:
    """Add the figure `explanation` of a round.

    It holds `clients` (by name: `cosine`, `to_mean`, `pull`; `accuracy`, `by_class` and `beyond_chance` of its votes;
    `trust` by class and `decides`; `accuracy_without` it, and the share of pseudo-labels that would be others, as far
    as the round lets them be known), `flags` (by name, a list of `kind` and `detail`), `votes` (the `set`, how many
    `samples` of it, what they are `compared_with`), `without` (whose accuracy is meant, and what it is of all) and
    `samples` (some images, see `strip`).
    """
    clients: Figures = {update.client: {} for update in job.participants}
    found: dict[str, list[flags.Flag]] = {}
    with job.phases.phase("explain"):
        pointing = _point(job, clients, found)
        told: dict[str, Any] = {}
        if job.spec.explain == "votes" and job.spec.task.kind == "classification":
            try:
                told = _vote(job, clients, found)
            except (JobFailure, PartError) as error:  # a network that cannot be asked here has not spoilt the round
                log.warning("round %d is explained without votes: %s", job.spec.round_index, error)
        right = flags.sound({name: each["beyond_chance"] for name, each in clients.items() if "beyond_chance" in each})
        for directions in pointing:
            _note(found, flags.opposing(directions, right))
    named = {name: [vars(flag) for flag in each] for name, each in sorted(found.items())}
    shown = {name: {key: _short(value) for key, value in each.items()} for name, each in clients.items()}
    job.metrics["explanation"] = {"clients": shown, "flags": named, **told}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return [_short(each) for each in value] if isinstance(value, list) else value


def _note(found: dict[str, list[flags.Flag]], more: Mapping[str, flags.Flag]) -> None:
    for name, flag in more.items():
        found.setdefault(name, []).append(flag)


# -------------------------------------------------------------------------------------------------------------- weights
def _point(job: Round, clients: Figures, found: dict[str, list[flags.Flag]]) -> list[dict[str, Direction]]:
    """Where the updates of each model point to; of those that hold weights. Return it of the models where it tells."""
    pointing: list[dict[str, Direction]] = []
    if not job.spec.local.objective.sends_weights:
        return pointing
    counted = job.metrics.get("weights", {})
    for name, updates in job.updates.items():
        base = job.prototype(name).network.weights
        if base is None:
            continue
        sources = [Source(each.client, each.weights, counted.get(each.client, each.num_samples)) for each in updates]
        try:
            changes = changes_of(sources, base)
        except PartError:  # FedMA's clients send models of other widths
            continue
        for client, each in changes.directions().items():
            clients[client] |= {key: value for key, value in vars(each).items() if value is not None}
            if job.spec.local.objective.starts_at_model:
                continue
            clients[client].pop("cosine", None)
        if job.spec.local.objective.starts_at_model:
            lazy = flags.idle(changes.lengths)
            _note(found, lazy)
            pointing.append(changes.directions())
            _note(found, flags.copying([group for group in changes.copies() if not lazy.keys() & set(group)]))
    return pointing


# ---------------------------------------------------------------------------------------------------------------- votes
def _vote(job: Round, clients: Figures, found: dict[str, list[flags.Flag]]) -> dict[str, Any]:
    """What the clients' models say; return `votes` and `without`."""
    heard = job.heard or Heard({})
    told: dict[str, Any] = {}
    _trusted(job, heard, clients)
    labels = _labels(job)
    if labels is not None and "test" not in heard.said:
        _ask(job, heard, len(labels))
    name = "test" if labels is not None and "test" in heard.said else "unlabeled"
    said = heard.whole(name)
    if not said:
        return told
    rows, names = heard.rows[name], list(said)
    votes = np.stack([votes_of(said[each]) for each in names])
    together = heard.ensembles.get(name)
    left_out = _left_out(job, said, together, rows)
    if name == "test" and labels is not None:
        classes, with_what = np.broadcast_to(labels[rows], votes.shape), "labels"
    elif left_out is not None:
        classes, with_what = np.stack([left_out[each] for each in names]), "others"
    elif len(names) > 1:
        classes, with_what = consensus(votes, np.ones(len(names)), job.spec.task.num_classes), "others"
    else:
        return told
    agreements = {
        each: agreement(vote, class_, job.spec.task.num_classes)
        for each, vote, class_ in zip(names, votes, classes, strict=True)
    }
    for each, its in agreements.items():
        clients[each] |= _agreement(its, len(clients) * job.spec.task.num_classes <= MOST_CELLS)
    _note(found, flags.disagreeing(agreements, "the labels" if with_what == "labels" else "the others"))
    told["votes"] = {"set": name, "samples": len(rows), "compared_with": with_what}
    if images := strip(job, heard, name, names, votes, labels):
        told["samples"] = images
    return told | _without(job, heard, clients, left_out, labels, name)


def _agreement(found: Agreement, by_class: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {"accuracy": found.share}
    if found.beyond_chance is not None:
        figures["beyond_chance"] = found.beyond_chance
    return figures | ({"by_class": found.by_class} if by_class else {})


def _labels(job: Round) -> Ints | None:
    """Return the test set's labels [T]; None where there is none."""
    path = job.spec.datasets.test
    if path is None:
        return None
    from worker.pipeline.networks import read_labels  # and with it torch

    return read_labels(path, "test", job.spec.task).numpy()


def _ask(job: Round, heard: Heard, samples: int) -> None:
    """Ask every client's network for what it says of some samples of the test set."""
    rows = rows_of(samples, len(job.participants), job.spec.task.num_classes)
    if rows is None or not job.spec.local.objective.sends_weights:
        return
    heard.rows["test"], inputs = rows, _inputs(job, rows)
    for update in job.participants:
        logits = _says(job, update, inputs)
        if logits is not None:
            heard.said.setdefault("test", {})[update.client] = logits


def _inputs(job: Round, rows: Ints) -> "Tensor":
    from worker.pipeline.networks import read_inputs

    assert job.spec.datasets.test is not None
    return read_inputs(job.spec.datasets.test, job.spec.task, "test")[rows]


def _says(job: Round, update: Update, inputs: "Tensor") -> Float | None:
    """Return a client's logits [P, C]; None where its network cannot be run here, or gives no numbers."""
    from worker.pipeline.networks import build_network

    network = job.network(update.prototype, update.model)
    if not is_server_side(network.architecture):
        return None
    try:
        module = build_network(network, job.spec.task, job.device, owner=f"update of {update.client!r}")
        return _logits(job, module, inputs)
    except JobFailure:
        return None


def _logits(job: Round, module: "nn.Module", inputs: "Tensor") -> Float:
    from worker.pipeline.networks import outputs

    return np.concatenate([values for _, values in outputs(module, inputs, job.device, owner="a client's network")])


# -------------------------------------------------------------------------------------------------------------- weights
def _trusted(job: Round, heard: Heard, clients: Figures) -> None:
    """Who is trusted on what: of the set that is learnt, or of the test set where nothing is."""
    together = heard.ensembles.get("unlabeled", heard.ensembles.get("test"))
    if together is None:
        return
    count = job.spec.task.num_classes
    first = decided(together.weights)
    by_class = trust_by_class(together.weights, together.classes, count)
    for name, row, share in zip(together.names, by_class, first, strict=True):
        if name in clients:
            clients[name]["decides"] = float(share)
            if len(clients) * count <= MOST_CELLS:
                clients[name]["trust"] = row


# -------------------------------------------------------------------------------------------------------------- without
def _left_out(job: Round, said: Mapping[str, Float], together: Together | None, rows: Ints) -> dict[str, Ints] | None:
    """Return what the ensemble would make of the samples without each client in turn; None where that is not known."""
    distil = job.spec.recipe.distil
    if distil is None or together is None or not 2 <= len(said) <= MOST_LEFT_OUT or set(together.names) != set(said):
        return None
    from worker.parts import combine  # and with it torch

    make: combine.MakeCombiner = implements.of(distil.combine)
    form = combine.Form(len(rows), (job.spec.task.num_classes,), job.spec.task.kind)
    with np.errstate(divide="ignore"):
        logs = dict(zip(together.names, np.log(together.weights[:, rows]), strict=True))
    found = {}
    for name in said:
        others = [each for each in together.names if each != name]
        with ExitStack() as stack:
            combiner = make(distil.combine, form, job.spec.output_dir / "explained", stack)
            for each in others:
                combiner.add(0, said[each], logs[each])
            made = combiner.result(normalise([logs[each] for each in others])).logits
            found[name] = votes_of(np.asarray(made, dtype=np.float64))
    return found


def _without(
    job: Round,
    heard: Heard,
    clients: Figures,
    left_out: Mapping[str, Ints] | None,
    labels: Ints | None,
    name: str,
) -> dict[str, Any]:
    """What ensemble or average would be without each client; return whose accuracy that is."""
    rows = heard.rows[name]
    told: dict[str, Any] = {}
    if left_out is not None:
        classes = heard.ensembles[name].classes[rows]
        for client, others in left_out.items():
            clients[client]["relabels"] = float((others != classes).mean())
            if labels is not None and name == "test":
                clients[client]["accuracy_without"] = float((others == labels[rows]).mean())
        if labels is not None and name == "test":
            told["without"] = {"model": "ensemble", "accuracy": float((classes == labels[rows]).mean())}
    elif labels is not None and name == "test" and job.spec.recipe.distil is None:
        told |= _average_without(job, clients, rows, labels[rows])
    return told


def _average_without(job: Round, clients: Figures, rows: Ints, labels: Ints) -> dict[str, Any]:
    """Take each client out of its average again, which is exact, and measure what is left."""
    from worker.pipeline.networks import build_network

    shares = job.metrics.get("weights", {})
    rule = job.spec.recipe.fuse  # sums are all that it reads, and nothing of rounds before: it is a mean
    possible = rule.sums is not None and not rule.declares.carries and len(clients) <= MOST_LEFT_OUT
    models = [
        name for name in job.averages if is_main(name) and is_server_side(job.prototype(name).network.architecture)
    ]
    if not possible or len(models) != 1 or len(job.updates[models[0]]) < 2:
        return {}
    [name] = models
    inputs, measured = _inputs(job, rows), _measuring(job, labels)
    mean = build_network(job.network(name, job.averages[name]), job.spec.task, job.device, owner="the average")
    for update in job.updates[name]:
        share = float(shares.get(update.client, 0.0))
        if share >= 1:
            continue
        network = job.network(name, update.weights)
        module = build_network(network, job.spec.task, job.device, owner=f"update of {update.client!r}")
        _take_out(module, mean, share)
        clients[update.client]["accuracy_without"] = measured(module, inputs)
    return {"without": {"model": "average", "accuracy": measured(mean, inputs)}}


def _measuring(job: Round, labels: Ints) -> "Callable[[nn.Module, Tensor], float]":
    return lambda module, inputs: float((votes_of(_logits(job, module, inputs)) == labels).mean())


def _take_out(module: "nn.Module", mean: "nn.Module", share: float) -> None:
    """Turn a client's network into the mean of the others: (mean - c_k w_k) / (1 - c_k); counters are the mean's."""
    for value, whole in zip(module.state_dict().values(), mean.state_dict().values(), strict=True):
        if value.is_floating_point():
            rest = (whole.double() - share * value.double()) / (1 - share)
            value.copy_(rest.to(value.dtype))
        else:
            value.copy_(whole)
