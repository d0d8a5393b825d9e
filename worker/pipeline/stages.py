"""The jobs around the rounds: first models, the generator, and the discriminators' scores."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from contract.architectures import is_server_side, output_of
from contract.local import SENT_PUBLIC
from contract.nn.codec import save_state
from contract.nn.scaling import to_signed_unit
from contract.objectives import JOINT_GENERATOR
from contract.partition import SENT_BASE
from contract.recipes import parts
from contract.seeds import derive_seed
from contract.tensors import BUFFERS_KEY, DIGESTS_KEY, Header, TensorFile, check_file, write_file
from contract.updates import FEATURES_KEY
from contract.wire.federations import Task
from worker.checkpoints import Checkpoint, Checkpoints, Contents
from worker.parts.flops import effort_of
from worker.pipeline import first_parts, generators
from worker.pipeline.data import server_set
from worker.pipeline.evaluation import headline, of_prototypes
from worker.pipeline.given import take
from worker.pipeline.job import SERVER
from worker.pipeline.needed import check_packages
from worker.pipeline.networks import build_network, inspect, measure, outputs, read_inputs, read_labels
from worker.pipeline.phases import Phases
from worker.pipeline.token_ids import check_ids
from worker.registry import implements
from worker.specs import (
    GeneratorSpec,
    InitializeSpec,
    JobFailure,
    JobResult,
    NetworkRef,
    Progress,
    PrototypeSpec,
    ScoreSpec,
)

Report = Callable[[Progress], None]


# ---------------------------------------------------------------------------------------------------------- initialize
def initialize(spec: InitializeSpec, report: Report, device: str = "cpu") -> JobResult:
    """Make the first model of every prototype: from the seed, or the imported file as it is, once it is checked.

    The server's model, where there is one, is among them under the name `server`. A model says in its metadata how
    many features its network has, if it has any; an imported file is completed so.

    Where devices are to read the server set (DS-FL), its inputs, without any labels, become the state `SENT_PUBLIC`;
    where they are to train a generator beside their model (DaFKD), the first one becomes `JOINT_GENERATOR`.

    Figures: `accuracy` or `measured`, and `model`, as in a round, where there is a test set; `networks` with what each
    costs (`worker.parts.flops.Effort`).

    Raises:
        JobFailure: bad_option, schema_mismatch or non_finite, naming the prototype.
        PluginError: a choice of another package cannot be carried out here.
    """
    check_packages(spec.packaged)
    phases = Phases(report)
    inspect(spec.networks)
    wanted = {each.name: each for each in spec.prototypes}
    if spec.server_model is not None:
        if SERVER in wanted:
            raise JobFailure("bad_option", f"a prototype is named {SERVER!r}, which is the server model's; rename it")
        wanted[SERVER] = spec.server_model
    check_ids(dict(spec.datasets), spec.task, {f"prototype {name!r}": each.network for name, each in wanted.items()})
    models: dict[str, Path] = {}
    with phases.phase("initialize", of=len(wanted)):
        for index, (name, each) in enumerate(wanted.items()):
            models[name] = spec.output_dir / f"model-{index}.safetensors"
            _first_model(spec, name, each, models[name])
            phases.step(index + 1)
    parted = first_parts.part(spec.prototypes, models, spec.output_dir)
    state = dict(parted.bases)
    networks = {
        name: each.network.model_copy(update={"base": state.get(SENT_BASE.named(name))})
        for name, each in wanted.items()
    }
    metrics = _first_accuracy(spec, networks, models, phases, device)
    metrics["networks"] = _efforts(networks, spec.task, parted.moving)
    if spec.public is not None:
        path = spec.output_dir / "public.safetensors"
        state[SENT_PUBLIC.named()] = path
        inputs = server_set(spec.public, spec.task, spec.datasets.unlabeled, spec.seed)
        write_file(path, {"inputs": inputs.numpy()})
    if spec.generator is not None:
        path = spec.output_dir / "generator.safetensors"
        seed = derive_seed(spec.seed, "generator")
        save_state(build_network(spec.generator, spec.task, "cpu", seed=seed, owner="generator"), path)
        state[JOINT_GENERATOR.named()] = path
    metrics["seconds"] = phases.seconds
    return JobResult(models=models, state=state or None, metrics=metrics, device=device)


def _first_model(spec: InitializeSpec, name: str, each: PrototypeSpec, target: Path) -> None:
    owner, network = f"prototype {name!r}", each.network
    runnable = is_server_side(network.architecture)
    seed = derive_seed(spec.seed, "model", name)
    if network.weights is not None:
        if not runnable:
            take(network.weights, target)
            return
        header = check_file(network.weights)
        drawn = network.model_copy(update={"weights": None})
        module = build_network(drawn, spec.task, "cpu", seed=seed, owner=owner) if each.parts else None
        if module is not None and first_parts.fill(module, network.weights, header, each.parts, owner):
            save_state(module, target, _named(header) | _features(module, spec.task))
            return
        module = build_network(network, spec.task, "cpu", owner=owner)
        if FEATURES_KEY in header.metadata or not _features(module, spec.task):
            shutil.copyfile(network.weights, target)
        else:
            save_state(module, target, header.metadata | _features(module, spec.task))
        return
    if not runnable:
        raise JobFailure(
            "bad_option",
            f"{owner}: architecture {network.architecture!r} cannot be built here; import a model and set "
            "initial_model",
        )
    module = build_network(network, spec.task, "cpu", seed=seed, owner=owner)
    save_state(module, target, _features(module, spec.task))


def _named(header: Header) -> dict[str, str]:
    """Return an imported file's metadata, without what tells of its tensors: the network has more."""
    return {key: value for key, value in header.metadata.items() if key not in (BUFFERS_KEY, DIGESTS_KEY)}


def _efforts(
    networks: Mapping[str, NetworkRef], task: Task, moving: Mapping[str, frozenset[str]] | None = None
) -> dict[str, Any]:
    """Return what each network costs, for those that can be built here."""
    found = {
        name: effort_of(each.architecture, each.options, task, (moving or {}).get(name))
        for name, each in networks.items()
    }
    return {name: asdict(effort) for name, effort in found.items() if effort is not None}


def _features(module: nn.Module, task: Task) -> dict[str, str]:
    """Return the metadata that tells the size of a network's features; empty where it has none."""
    features = getattr(module, "features", None)
    if not callable(features):
        return {}
    dtype = torch.int64 if task.input.is_tokens else torch.float32
    module.eval()
    with torch.no_grad():
        found = features(torch.zeros(1, *task.input.shape, dtype=dtype))
    return {FEATURES_KEY: str(found.shape[1])} if found.ndim == 2 else {}


def _first_accuracy(
    spec: InitializeSpec, wanted: dict[str, NetworkRef], models: dict[str, Path], phases: Phases, device: str
) -> dict[str, Any]:
    runnable = [name for name in wanted if is_server_side(wanted[name].architecture)]
    if spec.datasets.test is None or not runnable:
        return {}
    inputs = read_inputs(spec.datasets.test, spec.task, "test")
    labels = read_labels(spec.datasets.test, "test", spec.task)
    found: dict[str, dict[str, Any]] = {}
    with phases.phase("evaluate", of=len(runnable)):
        for done, name in enumerate(runnable, start=1):
            owner = f"prototype {name!r}"
            network = wanted[name].model_copy(update={"weights": models[name]})
            module = build_network(network, spec.task, device, owner=owner)
            found[name] = measure(module, inputs, labels, spec.task, device, owner=owner)
            phases.step(done)
    model = of_prototypes(found, spec.task)
    mean = model[spec.task.main_metric.key]
    value = model["prototypes"].get(SERVER, mean) if spec.server_model is not None else mean
    return headline(spec.task, value) | {"model": model}


# ----------------------------------------------------------------------------------------------------------- generator
def train_generator(
    spec: GeneratorSpec, report: Report, device: str = "cpu", checkpoints: Checkpoints | None = None
) -> JobResult:
    """Make the generator, a fresh discriminator for clients to start from, and what the recipe draws.

    Figures: `input_range` [lo, hi], the data values that the generator's -1 and 1 stand for; where it is trained also
    `critic`, a curve of (step, loss), and `steps`; `networks` as in `initialize`.

    Raises:
        JobFailure: bad_option (the data cannot be scaled, the architecture does not fit), schema_mismatch, non_finite.
    """
    phases = Phases(report)
    inspect(spec.networks)
    make: generators.Maker = implements.of(spec.generator)
    made = make(spec, spec.generator, phases, device, checkpoints or Checkpoints(None))
    if isinstance(made, Path):  # a federated generator that has rounds to go
        check_file(made)
        return JobResult(models={"gan": made}, metrics={"seconds": phases.seconds}, device=device)
    models = {"generator": spec.output_dir / "generator.safetensors"}
    save_state(made.module, models["generator"])
    check_file(models["generator"])
    if spec.discriminator is not None:
        models["discriminator"] = _first_discriminator(spec, spec.discriminator)
    if spec.data is not None and spec.data.drawn:
        models["samples"] = spec.output_dir / "samples.safetensors"
        with phases.phase("samples"):
            _samples(spec, made, models["samples"], device)
    networks = {"generator": NetworkRef(architecture=spec.generator.architecture, options=spec.generator.options)}
    networks |= {} if spec.discriminator is None else {"discriminator": spec.discriminator}
    metrics = {"input_range": list(made.span), **made.figures, "networks": _efforts(networks, spec.task)}
    metrics["seconds"] = phases.seconds
    return JobResult(models=models, metrics=metrics, device=device)


def _samples(spec: GeneratorSpec, made: generators.Made, target: Path, device: str) -> None:
    """Write the set that teachers will label as a data set's file, drawn once for the whole federation."""
    if isinstance(spec.data, parts.DataGenerated):
        inputs = generators.draw(made, spec.data.count, derive_seed(spec.seed, "samples"), device)
    else:
        assert spec.data is not None
        inputs = server_set(spec.data, spec.task, None, spec.seed)
    write_file(target, {"inputs": inputs.numpy()})
    check_file(target)


def _first_discriminator(spec: GeneratorSpec, network: NetworkRef) -> Path:
    """Write a fresh discriminator: the service, which cannot build one, checks the clients' against its tensors."""
    seed = derive_seed(spec.seed, "discriminator")
    target = spec.output_dir / "discriminator.safetensors"
    save_state(build_network(network, spec.task, "cpu", seed=seed, owner="discriminator"), target)
    return target


# --------------------------------------------------------------------------------------------------------------- score
def score(spec: ScoreSpec, report: Report, device: str = "cpu", checkpoints: Checkpoints | None = None) -> JobResult:
    """Write, per client, its discriminator's output on the server sets as float32 (FedGO eq. 9).

    That is the score a before any sigmoid or, where its options say so, the probability D, which must lie in [0, 1].
    A discriminator that cannot be scored stops nobody else: it has no file, and `rejected` of the figures says why.
    """
    phases = Phases(report)
    paths = {"unlabeled": spec.datasets.unlabeled, "test": spec.datasets.test}
    sets = {
        name: to_signed_unit(read_inputs(path, spec.task, name), spec.input_range)
        for name, path in paths.items()
        if path is not None
    }
    models: dict[str, Path] = {}
    spread: dict[str, float] = {}
    rejected: dict[str, str] = {}
    with phases.phase("score", of=len(spec.discriminators)):
        checkpoint = Checkpoint.of(checkpoints or Checkpoints(None), "score")
        known, refused = _scored_before(checkpoint, phases)
        for index, client in enumerate(sorted(spec.discriminators)):
            found = client in known
            try:
                if client in refused:
                    raise JobFailure(*refused[client])
                scores = known.pop(client, None) or _scores_of(spec, client, sets, device)
            except JobFailure as failure:
                refused[client] = (failure.code, failure.detail)
                rejected[client] = f"{failure.code}: {failure.detail}"
                continue
            models[client] = spec.output_dir / f"scores-{index}.safetensors"
            write_file(models[client], scores)
            spread[client] = float(np.std(scores["unlabeled"], dtype=np.float64)) if "unlabeled" in scores else 0.0
            if found:
                continue
            phases.step(index + 1)
            if checkpoint.due() and index + 1 < len(spec.discriminators):
                checkpoint.save(index + 1, *_scored_so_far(models, refused))
    metrics = {"spread": spread, "rejected": rejected, "seconds": phases.seconds}
    return JobResult(models=models, metrics=metrics, device=device)


def _scored_before(
    checkpoint: Checkpoint, phases: Phases
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, tuple[str, str]]]:
    """Return what an earlier attempt found: scores by client and set, and refusals by client."""
    if checkpoint.saved is None:
        return {}, {}
    phases.step(checkpoint.saved.step, resumed=True)
    known = {}
    for number, client in enumerate(checkpoint.saved.notes["clients"]):
        known[client] = checkpoint.saved.under(f"{number}.")
    return known, {client: (code, detail) for client, (code, detail) in checkpoint.saved.notes["refused"].items()}


def _scored_so_far(models: dict[str, Path], refused: dict[str, tuple[str, str]]) -> Contents:
    arrays: dict[str, np.ndarray] = {}
    for number, path in enumerate(models.values()):
        with TensorFile(path) as file:
            arrays |= {f"{number}.{name}": file.read(name) for name in file.names}
    return arrays, {"clients": list(models), "refused": {client: list(why) for client, why in refused.items()}}


def _scores_of(spec: ScoreSpec, client: str, sets: dict[str, Tensor], device: str) -> dict[str, np.ndarray]:
    network = NetworkRef(architecture=spec.architecture, options=spec.options, weights=spec.discriminators[client])
    return scores_of(network, spec.task, sets, device, f"discriminator of {client!r}")


def scores_of(
    network: NetworkRef, task: Task, sets: Mapping[str, Tensor], device: str, owner: str
) -> dict[str, np.ndarray]:
    """Return a discriminator's outputs [S], float32, on sets of inputs [S, ...] in [-1, 1].

    Raises:
        JobFailure: bad_option, schema_mismatch, non_finite; out_of_range where probabilities are wanted.
    """
    module = build_network(network, task, device, owner=owner)
    wants_probabilities = output_of(network.architecture, network.options) == "probability"
    found = {}
    for name, inputs in sets.items():
        found[name] = outputs_of(module, inputs, device, owner)
        low, high = float(found[name].min()), float(found[name].max())
        if wants_probabilities and not 0 <= low <= high <= 1:
            raise JobFailure(
                "out_of_range",
                f"{owner}: gives values from {low:g} to {high:g} on the {name} set, where probabilities lie in "
                "[0, 1]; let its architecture end in a sigmoid, or take output = score and another link",
            )
    return found


def outputs_of(module: nn.Module, inputs: Tensor, device: str, owner: str) -> np.ndarray:
    """Return a network's outputs [S], float32, for inputs [S, ...].

    Raises:
        JobFailure: architecture_failed, non_finite.
    """
    batches = [values for _, values in outputs(module, inputs, device, owner=owner)]
    return np.concatenate(batches).astype(np.float32)
