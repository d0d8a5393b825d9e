"""Received files: checked to hold exactly what the local plan sends, and made ready to be averaged."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from contract import lowbit
from contract.errors import RuleError
from contract.layout import manifest
from contract.tensors import DTYPES, Header, TensorError, TensorFile, TensorWriter, compare
from contract.updates import CONTROL, SEND, check_predictions
from worker.parts.groups import by_model
from worker.parts.rebase import factor_of, lay_file
from worker.pipeline.blame import blame
from worker.pipeline.job import Round, Update, header_of
from worker.specs import JobFailure, RoundSpec, UpdateSpec


def _counting(spec: RoundSpec) -> list[UpdateSpec]:
    """Return the updates that count, in the order of the clients' names.

    Raises:
        JobFailure: no_participants, no_positive_weight.
    """
    if not spec.updates:
        raise JobFailure("no_participants", "the round has no update; it should have been skipped")
    kept = [update for update in spec.updates if update.num_samples > 0]
    if not kept:
        raise JobFailure("no_positive_weight", "every update has num_samples 0; nobody can be averaged")
    return sorted(kept, key=lambda each: each.client)


def receive(job: Round) -> None:
    """Check every update that counts and put it into `job.updates`; those without samples are not even opened.

    What a plan sends as bits, or beside the model's tensors, is taken apart into a file under output_dir.

    Raises:
        PartError: out_of_range, for a prototype that the round does not have.
        JobFailure: no_participants, no_positive_weight; schema_mismatch, non_finite or no_probabilities, naming the
            client.
    """
    counting = _counting(job.spec)
    owners = [(f"update of {each.client!r}", each.prototype) for each in counting]
    found = by_model(owners, [each.name for each in job.spec.prototypes])
    ready = []
    for index, update in enumerate(counting):
        with blame(update.client):
            ready.append(_ready(job, update, index, counting[found[update.prototype][0]]))
    job.updates = {name: [ready[index] for index in indices] for name, indices in found.items()}


def _ready(job: Round, update: UpdateSpec, index: int, first: UpdateSpec) -> Update:
    base = _base(job, first)
    wanted = manifest(job.spec.local, base, job.spec.task.num_classes, _beside(job))
    try:
        compare(header_of(update.weights), wanted)
    except TensorError as error:
        raise JobFailure("schema_mismatch", f"update of {update.client!r}: {error.detail}") from error
    weights = sent = update.weights
    if job.spec.recipe.sends_predictions:
        _check_predictions(update)
    elif set(wanted.tensors) != set(base.tensors):
        weights = job.spec.output_dir / f"update-{index}.safetensors"
        _take_apart(update, weights, base)
    if update.control_reset:
        sent = job.spec.output_dir / f"sent-{index}.safetensors"
        _without_control(update.weights, sent)
        job.metrics.setdefault("control_reset", []).append(update.client)
    ready = Update(update.client, update.prototype, weights, sent, update.num_samples, update.label_counts)
    return ready if job.spec.staleness is None else _of_its_age(job, update, ready, index)


def _of_its_age(job: Round, update: UpdateSpec, ready: Update, index: int) -> Update:
    """Return an update of a round that does not wait: laid onto the round's model, where it began from an older one."""
    assert job.spec.staleness is not None
    versions = 0 if update.begun is None else update.begun.staleness
    factor = factor_of(job.spec.staleness, versions)
    job.metrics.setdefault("staleness", {})[update.client] = {"versions": versions, "factor": factor}
    if update.begun is None:
        return ready
    target = job.spec.output_dir / f"laid-{index}.safetensors"
    lay_file(ready.weights, update.begun.base, job.base(update.prototype), target, factor)
    return replace(ready, weights=target, trained=ready.weights, factor=factor)


def _beside(job: Round) -> Header | None:
    shaped_by = job.spec.local.objective.shaped_by
    path = None if shaped_by is None else job.spec.state.get(SEND + shaped_by)
    return None if path is None else header_of(path)


def _check_predictions(update: UpdateSpec) -> None:
    with TensorFile(update.weights) as file:
        try:
            check_predictions(file)
        except TensorError as error:
            raise JobFailure("no_probabilities", f"update of {update.client!r}: {error.detail}") from error


def _base(job: Round, first: UpdateSpec) -> Header:
    """Return the header of the model that was sent out; without one, that of its first update."""
    weights = job.prototype(first.prototype).network.weights
    return header_of(first.weights if weights is None else weights)


def _take_apart(update: UpdateSpec, target: Path, base: Header) -> None:
    try:
        lowbit.unpack_file(update.weights, target, base)
    except RuleError as error:
        code = "non_finite" if error.code == "non_finite" else "schema_mismatch"
        raise JobFailure(code, f"update of {update.client!r}: {error.detail}") from error


def _without_control(path: Path, target: Path) -> None:
    """Copy a SCAFFOLD update with no change of its control variate.

    A client that lost its variate starts at zero. What it sends is then not the change of the c_i that the server has
    counted, so c is left as it is for this round.
    """
    with TensorFile(path) as file:
        infos = {name: (info.dtype, info.shape) for name, info in file.header.tensors.items()}
        with TensorWriter(target, infos, file.header.metadata) as writer:
            for name in file.names:
                info = file.info(name)
                lost = name.startswith(CONTROL)
                writer.write(name, np.zeros(info.shape, DTYPES[info.dtype]) if lost else file.read(name))


def rename_tensors(path: Path, target: Path, names: dict[str, str]) -> None:
    """Write some tensors of a file under other names, one in memory at a time: new name -> old name, in this order."""
    with TensorFile(path) as file:
        infos = {new: (file.info(old).dtype, file.info(old).shape) for new, old in names.items()}
        with TensorWriter(target, infos, {}) as writer:
            for new, old in names.items():
                writer.write(new, file.read(old))


def temporary(job: Round) -> Iterator[Path]:
    """Yield the files that `receive` made."""
    for update in job.participants:
        for path in {update.weights, update.sent, update.model}:
            if path.parent == job.spec.output_dir:
                yield path
