"""A federation in a folder: devices trained by the SDK, rounds fused by the worker's pipeline, files in between.

Only data, measuring and plots are the experiments' own; whatever is trained, averaged, weighed or distilled is done by
the functions that devices and workers run.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from client_sdk import data as device_data
from client_sdk import discriminator as device_discriminator
from client_sdk import models as device_models
from client_sdk.training import LocalResult, train_local
from contract.federation import SERVER, FederationConfig
from contract.groups import original
from contract.local import DiscriminatorPlan, Link, LocalPlan
from contract.nn import codec
from contract.nn.registry import initialise
from contract.nn.scaling import to_signed_unit
from contract.recipes import presets
from contract.recipes.recipe import Recipe
from contract.seeds import derive_seed
from contract.tensors import BUFFERS_KEY, TensorFile, write_file
from contract.wire.federations import DatasetRefs, Prototype, Task
from contract.wire.plans import RoundsPlan
from worker.building import Builder
from worker.pipeline import run
from worker.pipeline.networks import build_network
from worker.specs import (
    Datasets,
    JobResult,
    JobSpec,
    NetworkRef,
    Progress,
    PrototypeSpec,
    RoundSpec,
    UpdateSpec,
)

Array = NDArray[Any]
IDENTITY = (-1.0, 1.0)
"""Input range that leaves data as they are: the toys' discriminators see raw coordinates."""


AVERAGE = presets.build("fedavg")
PLAIN = LocalPlan()
NOTHING = Datasets()


def _prototype(name: str, network: NetworkRef) -> Prototype:
    return Prototype(name=name, architecture=network.architecture, options=network.options)


def ignore(_: Progress) -> None:
    """Take a job's progress and do nothing with it."""


def task_of(classes: int, *shape: int) -> Task:
    """Return a classification task on float32 inputs of that shape."""
    return Task.model_validate({"num_classes": classes, "input": {"shape": list(shape)}})


def with_weights(prototype: PrototypeSpec, weights: Path) -> PrototypeSpec:
    """Return the prototype with other weights."""
    return prototype.model_copy(update={"network": prototype.network.model_copy(update={"weights": weights})})


def fakes_from(inputs: Array, seed: int, input_range: tuple[float, float] = IDENTITY) -> device_discriminator.Fakes:
    """Return a source of fakes that are the server set itself, in a seeded order, again and again.

    FedGO's toy (App. E.1) does this. It shows devices the server's data, so it is for experiments alone.
    """
    pool = torch.from_numpy(np.asarray(inputs, np.float32))
    order, waiting = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.int64)

    def draw(number: int) -> Tensor:
        nonlocal waiting
        while len(waiting) < number:
            waiting = torch.cat([waiting, torch.randperm(len(pool), generator=order)])
        rows, waiting = waiting[:number], waiting[number:]
        return to_signed_unit(pool[rows], input_range)

    return draw


class Bench:
    """One federation.

    Attributes:
        folder: its files.
        task: what its networks decide.
        seed: its seed; everything random derives from it and from names.
        device: torch device of networks, such as 'cpu'.
    """

    def __init__(self, folder: Path, task: Task, seed: int, device: str = "cpu"):
        self.folder, self.task, self.seed, self.device = folder, task, seed, device
        folder.mkdir(parents=True, exist_ok=True)
        self._jobs = count()

    def dataset(self, name: str, inputs: Array, labels: Array | None = None) -> Path:
        """Write a data set of the server; return its file."""
        arrays = {"inputs": np.ascontiguousarray(inputs, np.float32)}
        if labels is not None:
            arrays["labels"] = np.ascontiguousarray(labels, np.int64)
        write_file(self.folder / f"{name}.safetensors", arrays)
        return self.folder / f"{name}.safetensors"

    def samples(self, inputs: Array, labels: Array) -> device_data.Samples:
        """Return a device's data as the SDK takes them in."""
        found = device_data.load((np.asarray(inputs, np.float32), np.asarray(labels, np.int64)))
        found.check(self.task)
        return found

    def begin(self, *prototypes: PrototypeSpec, recipe: Recipe = AVERAGE) -> list[PrototypeSpec]:
        """Return the prototypes with their first models; those of groups are the recipe's."""
        build = self._builder(recipe, prototypes)
        made = self.run(build.initialize({}, self.output("initialize"))).models
        return [with_weights(each, made[each.name]) for each in prototypes]

    def train(
        self,
        client: str,
        prototype: PrototypeSpec,
        samples: device_data.Samples,
        plan: LocalPlan,
        *,
        index: int = 1,
    ) -> UpdateSpec:
        """Train one device for one round and write its update."""
        network = prototype.network
        given = Prototype(name="main", architecture=network.architecture, options=network.options)
        module = device_models.make(given, self.task, None)
        return self.train_module(client, prototype, module, samples, plan, index=index)[0]

    def train_module(
        self,
        client: str,
        prototype: PrototypeSpec,
        module: nn.Module,
        samples: device_data.Samples,
        plan: LocalPlan,
        *,
        index: int = 1,
        extras: Mapping[str, Path] | None = None,
        memory: Mapping[str, Tensor] | None = None,
    ) -> tuple[UpdateSpec, LocalResult]:
        """Train a device's module from the prototype's weights; return its update and all that training gave."""
        assert prototype.network.weights is not None
        device_models.load(module, prototype.network.weights)
        with TensorFile(prototype.network.weights) as file:
            base = file.header
        result = train_local(
            module,
            samples,
            plan,
            seed=derive_seed(self.seed, "round", index, "client", client, "train"),
            device=torch.device(self.device),
            base=base,
            extras=extras,
            memory=memory,
            first=memory is None,
            round_index=index,
            prototype=Prototype(
                name="main", architecture=prototype.network.architecture, options=prototype.network.options
            ),
        )
        path = self.folder / f"update-{next(self._jobs)}.safetensors"
        names = json.dumps(codec.buffer_names(module))
        write_file(path, codec.state_arrays(result.tensors), {BUFFERS_KEY: names})
        update = UpdateSpec(client=client, prototype=prototype.name, weights=path, num_samples=len(samples))
        return update, result

    def discriminator(
        self,
        client: str,
        samples: device_data.Samples,
        fakes: device_discriminator.Fakes,
        plan: DiscriminatorPlan,
        link: Link,
        input_range: tuple[float, float] = IDENTITY,
    ) -> Path:
        """Train one device's discriminator and write it."""
        seed = derive_seed(self.seed, "discriminator", client)
        module = initialise(plan.architecture, plan.options, self.task, derive_seed(self.seed, "discriminator"))
        device_discriminator.train_discriminator(
            module,
            samples,
            fakes,
            plan,
            link=link,
            input_range=input_range,
            seed=seed,
            device=torch.device(self.device),
        )
        path = self.folder / f"discriminator-{next(self._jobs)}.safetensors"
        codec.save_state(module, path)
        return path

    def score(
        self,
        discriminators: Mapping[str, Path],
        plan: DiscriminatorPlan,
        datasets: Datasets,
        input_range: tuple[float, float] = IDENTITY,
    ) -> dict[str, Path]:
        """Return every client's scores on the server's sets."""
        recipe = presets.build("fedgo-small", {"plan": plan.model_dump()})
        build = self._builder(recipe, [], datasets)
        return self.run(build.score(discriminators, input_range, self.output("score"))).models

    def fuse(
        self, recipe: Recipe, prototypes: Sequence[PrototypeSpec], updates: Sequence[UpdateSpec], **fields: Any
    ) -> JobResult:
        """Fuse one round; `fields` are those of `round_spec`."""
        return self.run(self.round_spec(recipe, prototypes, updates, **fields))

    def round_spec(
        self,
        recipe: Recipe,
        prototypes: Sequence[PrototypeSpec],
        updates: Sequence[UpdateSpec],
        *,
        datasets: Datasets = NOTHING,
        local: LocalPlan = PLAIN,
        server_model: PrototypeSpec | None = None,
        scores: Mapping[str, Path] | None = None,
        state: Mapping[str, Path] | None = None,
        round_index: int = 1,
        rounds_total: int = 1,
        clients_total: int = 0,
    ) -> RoundSpec:
        """Return what a round's job is told."""
        build = self._builder(recipe, prototypes, datasets, local, server_model, rounds_total)
        models = {each.name: each.network.weights for each in prototypes}
        if server_model is not None:
            models[SERVER] = server_model.network.weights
        return build.round(
            round_index,
            {name: path for name, path in models.items() if path is not None},
            updates,
            self.output("round"),
            clients_total={original(each.name): clients_total for each in prototypes},
            scores=scores or {},
            state=state or {},
        )

    def _builder(
        self,
        recipe: Recipe,
        prototypes: Sequence[PrototypeSpec],
        datasets: Datasets = NOTHING,
        local: LocalPlan = PLAIN,
        server_model: PrototypeSpec | None = None,
        rounds_total: int = 1,
    ) -> Builder:
        networks = {original(each.name): each.network for each in prototypes}
        config = FederationConfig(
            task=self.task,
            prototypes=[_prototype(name, network) for name, network in networks.items()],
            server_model=None if server_model is None else _prototype(SERVER, server_model.network),
            recipe=recipe,
            local=local,
            rounds=RoundsPlan(total=rounds_total),
            datasets=DatasetRefs(),
        )
        return Builder(config, self.seed, datasets)

    def run(self, spec: JobSpec) -> JobResult:
        """Do a job as a worker does."""
        return run(spec, ignore, device=self.device)

    def predict(self, network: NetworkRef, weights: Path, inputs: Array) -> Array:
        """Return the class [N] that a network gives each input."""
        module = build_network(network.model_copy(update={"weights": weights}), self.task, self.device, owner="plot")
        module.eval()
        with torch.no_grad():
            logits: Tensor = module(torch.from_numpy(np.asarray(inputs, np.float32)).to(self.device))
        return np.asarray(logits.argmax(1).cpu().numpy())

    def ensemble(self, spec: RoundSpec, inputs: Array) -> Array:
        """Return the class [N] that a round's teachers together give each input, by the recipe's weights.

        Weightings that read scores take those on the test set, whose inputs these must be.
        """
        from worker.pipeline.fusing import fuse
        from worker.pipeline.job import Round
        from worker.pipeline.labels import Labeller
        from worker.pipeline.teachers import members
        from worker.pipeline.updates import receive

        assert spec.recipe.distil is not None
        spec.output_dir.mkdir(parents=True, exist_ok=True)
        job = Round.begin(spec, ignore, self.device)
        receive(job)
        fuse(job)
        distil = spec.recipe.distil
        labeller = Labeller(distil.weigh, distil.combine, spec.task, self.device, spec.output_dir)
        seen = labeller.label(members(job), {"test": torch.from_numpy(np.asarray(inputs, np.float32))}, lambda _: None)
        return np.asarray(seen["test"].targets.logits.argmax(1).numpy())

    def output(self, what: str) -> Path:
        """Return a fresh folder for a job's files."""
        return self.folder / f"{what}-{next(self._jobs)}"
