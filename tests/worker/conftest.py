"""Numeric tests share two cores with everything else; a federation small enough to run every recipe for two rounds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from contract import groups, lowbit
from contract.groups import original
from contract.layout import manifest
from contract.local import LocalPlan
from contract.recipes import parts
from contract.recipes.recipe import Recipe
from contract.seeds import derive_seed
from contract.tensors import DTYPES, FLOATS, TensorFile, write_file
from contract.updates import binary_weights
from contract.wire.federations import Task
from worker.pipeline import run
from worker.specs import (
    Datasets,
    InitializeSpec,
    JobResult,
    NetworkRef,
    Progress,
    PrototypeSpec,
    RoundSpec,
    UpdateSpec,
)

# No deadline: a loaded machine is not a defect. The same examples every time: a red test can be run again.
settings.register_profile("potstill", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("potstill")

Network = dict[str, Any]
Read = Callable[[Path], dict[str, np.ndarray]]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tiny networks on several threads wait on one another: ten times slower where another process is busy."""
    import torch

    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")


def ignore(_: Progress) -> None:
    """Take progress and do nothing with it."""


class Federation:
    """Rounds of a recipe without a service: clients whose training is noise, and whose files are what their plan sends.

    Args:
        root: an empty folder.
        recipe: what is run.
        local: what the clients would have run.
        prototypes: name -> network; clients are dealt out to their models in turn.
        server: Fed-ET's larger network.
        clients: how many take part.
    """

    task = Task.model_validate({"num_classes": 3, "input": {"shape": [1, 4, 4]}})

    def __init__(
        self,
        root: Path,
        recipe: Recipe,
        local: LocalPlan | None = None,
        prototypes: dict[str, Network] | None = None,
        server: Network | None = None,
        clients: int = 5,
    ):
        self.root, self.recipe, self.local = root, recipe, local or LocalPlan()
        self.names = [f"ward-{number}" for number in range(1, clients + 1)]
        networks = prototypes or {"main": self._network()}
        count = recipe.groups.count if isinstance(recipe.groups, parts.GroupsRandom) else 1
        self.networks = {copy: networks[name] for name in networks for copy in groups.copies(name, count)}
        self.server = server
        self.round_index = 1
        self.results: list[JobResult] = []
        self.datasets = self._data()
        first = self._initialise()
        self.models, self.state = dict(first.models), dict(first.state or {})

    def _network(self) -> Network:
        """Return a small network with BatchNorm, or one without where the recipe cannot fuse that."""
        network: Network = {"architecture": "cnn-digits", "options": {"widths": [3, 4]}}
        try:
            self.recipe.fuse.check_network(**network, shape=self.task.input.shape, classes=self.task.num_classes)
        except ValueError:
            return {"architecture": "mlp", "options": {"hidden": [5, 4]}}
        return network

    def _data(self) -> Datasets:
        rng = np.random.default_rng(5)
        for name, size in (("unlabeled", 21), ("test", 12), ("validation", 9)):
            arrays = {"inputs": rng.normal(size=(size, 1, 4, 4)).astype(np.float32)}
            if name != "unlabeled" or self.recipe.needs_labels:
                arrays["labels"] = rng.integers(0, 3, size).astype(np.int64)
            write_file(self.root / name, arrays)
        for client in self.names:
            sets = {"unlabeled": 21, "test": 12}
            scores = {name: rng.normal(size=size).astype(np.float32) for name, size in sets.items()}
            write_file(self.root / f"scores-{client}", scores)
        paths = {name: self.root / name for name in ("unlabeled", "test", "validation")}
        return Datasets(**paths)

    def _initialise(self) -> JobResult:
        distil, objective = self.recipe.distil, self.local.objective
        beside = [NetworkRef(architecture=name, options=options) for _, name, options in objective.networks]
        spec = InitializeSpec(
            seed=3,
            task=self.task,
            prototypes=[PrototypeSpec(name=name, network=NetworkRef(**ref)) for name, ref in self.networks.items()],
            server_model=PrototypeSpec(name="server", network=NetworkRef(**self.server)) if self.server else None,
            generator=beside[0] if beside else None,
            public=distil.data if distil is not None and self.recipe.sends_predictions else None,
            datasets=Datasets(unlabeled=self.datasets.unlabeled),
            output_dir=self.root / "first",
        )
        return run(spec, ignore)

    # ------------------------------------------------------------------------------------------------------- clients
    def samples_of(self, client: str) -> int:
        """Return n_k."""
        return 4 + 3 * self.names.index(client)

    def updates(self) -> list[UpdateSpec]:
        """Return this round's updates, in the order of the clients' names."""
        found, models = [], list(self.networks)
        for number, client in enumerate(self.names):
            prototype = models[(number + self.round_index) % len(models)]
            path = self.root / f"update-{self.round_index}-{client}"
            if not path.exists():
                write_file(path, self.trained(client, prototype), {"num_samples": "1"})
            counts = [1 + number, 2, 3 * number]
            found.append(
                UpdateSpec(
                    client=client,
                    prototype=prototype,
                    weights=path,
                    num_samples=self.samples_of(client),
                    label_counts=counts,
                )
            )
        return found

    def trained(self, client: str, prototype: str) -> dict[str, np.ndarray]:
        """Return the tensors of an update: the model's with noise, and whatever the plan asks for beside or instead."""
        rng = np.random.default_rng(derive_seed(7, self.round_index, client))
        with TensorFile(self.models[prototype]) as file:
            base, state = file.header, {name: file.read(name) for name in file.names}
        for name, info in base.tensors.items():
            if info.dtype in FLOATS:
                noise = rng.normal(size=info.shape).astype(np.float32)
                state[name] = state[name] + (np.abs(noise) if name.endswith("running_var") else 0.3 * noise)
            else:
                state[name] = state[name] + np.int64(1 + self.names.index(client))
        arrays: dict[str, np.ndarray] = {}
        beside = None
        if (shaped_by := self.local.objective.shaped_by) is not None:
            with TensorFile(self.state[f"send.{shaped_by}"]) as file:
                beside = file.header
        for name, info in manifest(self.local, base, self.task.num_classes, beside).tensors.items():
            kind, _, of = name.partition(".")
            if name in state:
                arrays[name] = state[name]
            elif kind in ("bits", "scale") and of in binary_weights(base):
                rounded = lowbit.binarize(state[of])
                arrays[name] = lowbit.pack(rounded.binary) if kind == "bits" else rounded.scale
            else:
                arrays[name] = rng.normal(size=info.shape).astype(np.float32)
            if name == "predictions":
                arrays[name] = rng.dirichlet(np.ones(info.shape[1]), info.shape[0])
            if name == "class_counts":
                arrays[name] = np.array([3, 0 if client == "ward-1" else 2, 1])
            arrays[name] = arrays[name].astype(DTYPES[info.dtype])
        return arrays

    # -------------------------------------------------------------------------------------------------------- rounds
    def spec(self, out: str, updates: list[UpdateSpec] | None = None, **changes: Any) -> RoundSpec:
        """Return the description of the current round; its files go to a folder of that name."""
        prototypes = [
            PrototypeSpec(name=name, network=NetworkRef(**ref, weights=self.models[name]))
            for name, ref in self.networks.items()
        ]
        server = self.server and PrototypeSpec(
            name="server", network=NetworkRef(**self.server, weights=self.models["server"])
        )
        fields: dict[str, Any] = {
            "seed": 3,
            "round_index": self.round_index,
            "rounds_total": 4,
            "task": self.task,
            "recipe": self.recipe,
            "prototypes": prototypes,
            "updates": self.updates() if updates is None else updates,
            "datasets": self.datasets,
            "scores": {name: self.root / f"scores-{name}" for name in self.names} if self.recipe.reads_scores else {},
            "local": self.local,
            "clients_total": {original(name): len(self.names) for name in self.networks},
            "server_model": server,
            "state": self.state,
            "output_dir": self.root / out,
        }
        return RoundSpec(**(fields | changes))

    def round(self, updates: list[UpdateSpec] | None = None, **changes: Any) -> JobResult:
        """Run the current round and go on to the next."""
        result = run(self.spec(f"round-{self.round_index}", updates, **changes), ignore)
        self.models |= result.models
        self.state = self.state if result.state is None else result.state
        self.round_index += 1
        self.results.append(result)
        return result


@pytest.fixture
def federation() -> type[Federation]:
    """Return the class: test modules cannot import one another's helpers."""
    return Federation


def figures(result: JobResult) -> dict[str, Any]:
    """Return what must repeat itself: bytes of every file, and every figure but times."""
    files = {**result.models, **{f"state {name}": path for name, path in (result.state or {}).items()}}
    metrics = {key: value for key, value in result.metrics.items() if key != "seconds"}
    return {"metrics": metrics} | {name: path.read_bytes() for name, path in files.items()}


Repeat = Callable[[Federation], JobResult]


@pytest.fixture
def repeatable() -> Repeat:
    """Return a function that runs a round thrice, once in another order, and asserts that all results are the same."""

    def check(federation: Federation) -> JobResult:
        updates = federation.updates()
        first = run(federation.spec("first-run", updates), ignore)
        assert figures(first) == figures(run(federation.spec("second-run", updates), ignore))
        assert figures(first) == figures(run(federation.spec("turned", updates[::-1]), ignore))
        for path in {*first.models.values(), *(first.state or {}).values()}:
            with TensorFile(path) as file:
                assert all(np.isfinite(file.read(name).astype(np.float64)).all() for name in file.names)
        return first

    return check


@pytest.fixture
def tensors() -> Read:
    """Return a function that reads a whole file."""

    def read(path: Path) -> dict[str, np.ndarray]:
        with TensorFile(path) as file:
            return {name: file.read(name) for name in file.names}

    return read
