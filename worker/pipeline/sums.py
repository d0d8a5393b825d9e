"""Secure rounds: each model's masked updates become their mean, as if one client had sent it. No single one is read."""

from collections.abc import Mapping
from pathlib import Path

from contract.secure.weights import is_weighted, weight_of
from contract.tensors import TensorError, compare
from worker.masks import SecureGroup, SecureSum
from worker.parts import secure
from worker.parts.blocks import Source
from worker.parts.errors import PartError
from worker.pipeline.job import Round, Update, header_of
from worker.specs import JobFailure, UpdateSpec


def add_up(job: Round) -> None:
    """Put the mean of each model's updates into `job.updates`, with what all of them count.

    The fuse rule then steps from that mean, as it would from the plain one.

    Raises:
        JobFailure: no_participants; bad_option, when the updates are not those that unmask the sum.
        PartError: see `worker.parts.secure`; it names the model.
    """
    spec, asked = job.spec, job.spec.secure
    assert asked is not None
    if not spec.updates:
        raise JobFailure("no_participants", "the round has no update; it should have been skipped")
    models = sorted({update.prototype for update in spec.updates})
    with job.phases.phase("unmask", of=len(models)):
        for done, model in enumerate(models, start=1):
            updates = sorted((each for each in spec.updates if each.prototype == model), key=lambda each: each.client)
            weights = counts(job, model)
            target = job.file("sum", model)
            try:
                _sum(job, asked, model, updates, weights, target)
            except PartError as error:
                raise PartError(error.code, f"model {model!r}: {error.detail}") from error
            total = sum(weights.values())
            job.updates[model] = [Update(f"the sum of {len(updates)} updates", model, target, target, total)]
            job.phases.step(done)


def counts(job: Round, model: str) -> dict[str, int]:
    """Return what each client's update of a model counts: its samples, or one."""
    weighted = is_weighted(job.spec.recipe.fuse)
    updates = [update for update in job.spec.updates if update.prototype == model]
    return {update.client: weight_of(update.num_samples, weighted) for update in updates}


def shares(job: Round) -> dict[str, float]:
    """Return each client's part of the mean of its model; those of a model sum to 1."""
    found: dict[str, float] = {}
    for model in job.updates:
        weights = counts(job, model)
        found |= {client: weight / sum(weights.values()) for client, weight in weights.items()}
    return found


def _sum(
    job: Round, asked: SecureSum, model: str, updates: list[UpdateSpec], weights: Mapping[str, int], target: Path
) -> None:
    sources = [Source(update.client, update.weights, weights[update.client]) for update in updates]
    base, masks = job.base(model), None
    if asked.groups is None:
        for update in updates:
            _check_plain(update, base)
    else:
        group = asked.groups.get(model)
        if group is None or sorted(group.survivors) != sorted(weights):
            raise JobFailure("bad_option", f"model {model!r}: the updates are not those whose sum can be unmasked")
        masks = secure.recover(_known(group, asked.plan.threshold))
    secure.sum_files(sources, base, target, asked.plan.fixed, masks, job.phases.alive)


def _check_plain(update: UpdateSpec, base: Path) -> None:
    try:
        compare(header_of(update.weights), header_of(base))
    except TensorError as error:
        raise JobFailure("schema_mismatch", f"update of {update.client!r}: {error.detail}") from error


def _known(group: SecureGroup, threshold: float) -> secure.Group:
    return secure.Group(
        session=group.session,
        threshold=threshold,
        mask_keys=_bytes(group.mask_keys),
        commitments=_bytes(group.commitments),
        members=group.members,
        survivors=group.survivors,
        seeds={name: _bytes(told) for name, told in group.seeds.items()},
        keys={name: _bytes(told) for name, told in group.keys.items()},
    )


def _bytes(told: Mapping[str, str]) -> dict[str, bytes]:
    return {name: bytes.fromhex(value) for name, value in told.items()}
