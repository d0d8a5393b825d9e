"""One round on the device's disk: fetch what the assignment names, train, store the update until it is delivered."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from client_sdk import evaluation, methods, models, parted, privacy
from client_sdk.data import Samples
from client_sdk.measuring import measure
from client_sdk.resources import Resources
from client_sdk.state import Pending, StateFolder
from client_sdk.training import Hooks, LocalResult, train_local
from contract import traces
from contract.evaluation import Evaluation
from contract.nn import codec
from contract.seeds import derive_seed
from contract.tensors import BUFFERS_KEY, DIGESTS_KEY, TensorFile, write_file
from contract.updates import BASE
from contract.wire.devices import TrainAssignment
from contract.wire.federations import ModelRef

Mask = Callable[[TrainAssignment, int, Callable[[int], dict[str, str]]], None]
"""Masks the folder's plain update into its draft, see `client_sdk.secure.session.SecureSessions.mask`."""
_DIGESTED = 5_000
"""More tensors than that bring no digests of their values: the header would not hold them."""


def fetch(
    resources: Resources, assignment: TrainAssignment, *, with_model: bool = True
) -> tuple[Path | None, dict[str, Path]]:
    """Download the round's model, if it is read, and extras, each once per digest; return their paths.

    Other models are removed.
    """
    wanted = [assignment.model, *assignment.extras.values()]
    resources.folder.prune_models(wanted={model.digest for model in wanted})
    base = resources.download(assignment.model) if with_model else None
    return base, {name: resources.download(model) for name, model in sorted(assignment.extras.items())}


def final_model(resources: Resources, model: ModelRef, base: ModelRef | None) -> Path:
    """Download what the rounds made; return the whole network's file, with what this device has kept to itself."""
    folder = resources.folder
    path = resources.download(model)
    parted.check_base(path, base)
    if base is None:
        folder.prune_models(wanted={model.digest})
        return path
    parted.write_whole(path, resources.download(base), folder.memory.begin(""), folder.final)
    folder.prune_models(wanted=set())
    return folder.final


def train_round(
    assignment: TrainAssignment,
    resources: Resources,
    module: nn.Module,
    hooks: Hooks,
    mask: Mask | None = None,
) -> Pending:
    """Train the round's model; store the update, and the method's state beside it, so that both survive a crash.

    The update's bytes depend on model, data, plan, seed and the method's state only (and, with differential privacy,
    on secret noise): no times in the metadata.
    """
    folder = resources.folder
    memory = folder.memory.begin(assignment.round.id)
    parts = parted.partition_of(module, assignment.prototype)
    goes_on = parts is None and methods.goes_on(assignment.local, module, memory)
    with traces.span("fetch"):
        path, extras = fetch(resources, assignment, with_model=not goes_on)
    base = None
    if path is not None:
        parted.check_base(path, assignment.extras.get(BASE))
        models.load(module, path, extras.get(BASE))
        with TensorFile(path) as file:
            base = file.header
    if parts is not None:
        parted.load_kept(module, memory, parts.kept)
    samples, held_out = evaluation.parts_of(assignment, resources)
    before = _measured(module, held_out, assignment, resources, hooks)
    with traces.span("train"):
        result = train_local(
            module,
            samples,
            assignment.local,
            seed=_seed(assignment),
            device=resources.device,
            base=base,
            extras=extras,
            memory=memory,
            first=folder.is_new(),
            round_index=assignment.round.index,
            prototype=assignment.prototype,
            parts=parts,
            on_epoch=hooks.on_epoch,
            on_step=hooks.on_step,
            on_pass=hooks.on_pass,
            loop=None if resources.own is None else resources.own.loop(folder.path, hooks),
            wishes=resources.wishes,
        )
    after = _measured(module, held_out, assignment, resources, hooks)
    figures = None if held_out is None else evaluation.figures(assignment, before, len(held_out))
    return _submit(assignment, folder, module, result, mask, {"before": before, "after": after}, figures)


def _seed(assignment: TrainAssignment) -> int:
    """Return the seed of a device's draws; from a model that it has trained before they are others."""
    again = ("turn", assignment.round.turn) if assignment.round.turn else ()
    path = ("round", assignment.round.index, "client", assignment.client_name, *again, "train")
    return derive_seed(assignment.seed, *path)


def _measured(
    module: nn.Module, held_out: Samples | None, assignment: TrainAssignment, resources: Resources, hooks: Hooks
) -> dict[str, Any]:
    """Return what the network is worth on the samples that are held out; empty where there are none."""
    if held_out is None:
        return {}
    size, plan = assignment.local.batch_size, assignment.evaluate
    further = () if plan is None or not plan.in_round(assignment.round.index) else plan.metrics
    return measure(module, held_out, resources.device, batch_size=size, further=further, on_pass=hooks.on_pass)


def _submit(
    assignment: TrainAssignment,
    folder: StateFolder,
    module: nn.Module,
    result: LocalResult,
    mask: Mask | None,
    measured: dict[str, dict[str, Any]],
    figures: Evaluation | None,
) -> Pending:
    epsilon, plan = None, assignment.local
    if plan.privacy is not None and result.spent is not None:
        epsilon = privacy.epsilon(folder.spend(result.spent), plan.privacy.delta)
    pending = Pending(
        kind="update",
        purpose=assignment.round.id,
        base=assignment.model.id,
        loss=result.loss,
        accuracy=result.accuracy,
        steps=result.steps,
        num_samples=result.num_samples,
        epsilon=epsilon,
        session=None if assignment.secure is None else assignment.secure.session,
        metrics=result.metrics,
        **measured,
    )
    arrays = codec.state_arrays(result.tensors)
    if mask is None:
        write_file(folder.draft, arrays, _metadata(pending, result, module, figures))
    else:
        write_file(folder.plain, arrays)
        mask(assignment, pending.num_samples, lambda clipped: _masked_metadata(pending, clipped))
    folder.memory.propose(assignment.round.id, result.memory)
    folder.submit(pending)
    return pending


def _masked_metadata(pending: Pending, clipped: int) -> dict[str, str]:
    """Return what stands beside masked values: nothing that was measured on this device's data alone."""
    metrics: dict[str, float] = {"steps": pending.steps, "clipped": clipped}
    metrics |= {} if pending.epsilon is None else {"epsilon": pending.epsilon}
    return {"num_samples": str(pending.num_samples), "base_model": pending.base, "metrics": json.dumps(metrics)}


def _metadata(pending: Pending, result: LocalResult, module: nn.Module, figures: Evaluation | None) -> dict[str, str]:
    metrics: dict[str, Any]
    if pending.epsilon is None:
        metrics = {"loss": pending.loss, "accuracy": pending.accuracy, "steps": pending.steps}
        metrics = {name: value for name, value in metrics.items() if value is not None}
    else:  # loss and accuracy were measured on the data without noise: they stay here
        metrics = {"steps": pending.steps, "epsilon": pending.epsilon}
    if figures is not None:
        metrics["evaluation"] = figures.model_dump(mode="json")
    metadata = {
        "num_samples": str(pending.num_samples),
        "base_model": pending.base,
        "metrics": json.dumps(metrics),
        BUFFERS_KEY: json.dumps([name for name in codec.buffer_names(module) if name in result.tensors]),
    }
    if len(result.tensors) <= _DIGESTED:
        metadata[DIGESTS_KEY] = codec.digests(result.tensors)
    return metadata | ({"control_reset": "1"} if result.control_reset else {})
