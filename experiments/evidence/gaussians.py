"""T1: FedGO's four Gaussians (Fig. 1, App. E.1), with a little and with no data shared between clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.local import Adam, DiscriminatorPlan, LocalPlan
from contract.recipes import presets
from contract.recipes.recipe import Recipe
from contract.tensors import write_file
from contract.wire.federations import Task
from experiments.evidence.harness import Bench, fakes_from, task_of
from worker.specs import Datasets, JobResult, NetworkRef, PrototypeSpec, UpdateSpec

Array = NDArray[Any]
CENTRES = np.array([[4.0, 4.0], [-4.0, 4.0], [-4.0, -4.0], [4.0, -4.0]])  # quadrants 1 to 4
CLASSES = np.array([0, 1, 0, 2])  # red in quadrants 1 and 3, blue in 2, green in 4
VARIANCE, EDGE, GRID = 3.0, 12.0, 120
TASK: Task = task_of(3, 2)
CLIENTS = tuple(f"client-{number}" for number in range(1, 5))
HIDDEN = {"hidden": [64, 64]}


@dataclass(frozen=True)
class Variant:
    """How much data clients share, and how long everybody trains.

    Attributes:
        shared: samples that a client has of each of the other Gaussians; it has 300 in all.
        epochs: of the classifier; `discriminator` and `distillation` likewise.
    """

    shared: int
    epochs: int
    discriminator: int
    distillation: int

    @property
    def local(self) -> LocalPlan:
        """What a client runs."""
        return LocalPlan(optimizer=Adam(lr=1e-3), epochs=self.epochs, batch_size=64)

    @property
    def plan(self) -> DiscriminatorPlan:
        """How it trains its discriminator."""
        return DiscriminatorPlan(
            architecture="disc-mlp", options=dict(HIDDEN), optimizer=Adam(lr=1e-3), epochs=self.discriminator
        )


SHARED = Variant(shared=10, epochs=2, discriminator=10, distillation=20)
APART = Variant(shared=0, epochs=50, discriminator=50, distillation=30)


# ----------------------------------------------------------------------------------------------------------------- data
def quadrant_rule(points: Array) -> Array:
    """Return the class [N] that each point [N, 2] belongs to."""
    right, upper = points[:, 0] > 0, points[:, 1] > 0
    return np.where(right, np.where(upper, 0, 2), np.where(upper, 1, 0)).astype(np.int64)


def grid() -> Array:
    """Return the centres [14400, 2] of a 120 x 120 grid over [-12, 12]^2."""
    ticks = (np.arange(GRID) + 0.5) * (2 * EDGE / GRID) - EDGE
    return np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)


def client_data(shared: int, rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Return each client's 300 points: `shared` of each other client's Gaussian, the rest of its own."""
    clouds = [centre + np.sqrt(VARIANCE) * rng.standard_normal((300, 2)) for centre in CENTRES]
    cuts = [np.split(cloud, [300 - 3 * shared, 300 - 2 * shared, 300 - shared]) for cloud in clouds]
    found = []
    for me in range(4):
        pieces = [(me, cuts[me][0])]
        pieces += [(other, cuts[other][1 + (me - other - 1) % 4]) for other in range(4) if other != me]
        inputs = np.concatenate([piece for _, piece in pieces])
        labels = np.concatenate([np.full(len(piece), CLASSES[who]) for who, piece in pieces])
        found.append((inputs, labels))
    return found


def densities(points: Array, shared: int) -> Array:
    """Return each client's true density [4, N] at the points."""
    squares = ((points[None] - CENTRES[:, None]) ** 2).sum(-1)
    gaussians = np.exp(-squares / (2 * VARIANCE)) / (2 * np.pi * VARIANCE)
    part = shared / 300
    return np.asarray((1 - 4 * part) * gaussians + part * gaussians.sum(0))


# ----------------------------------------------------------------------------------------------------------- federation
@dataclass
class World:
    """One seed's federation after its clients have trained."""

    bench: Bench
    variant: Variant
    prototype: PrototypeSpec
    data: list[tuple[Array, Array]]
    updates: list[UpdateSpec]
    datasets: Datasets
    scores: dict[str, dict[str, Path]]
    server: Array
    test: Array

    def fuse(self, method: str) -> JobResult:
        """Fuse the round by one of `METHODS`."""
        return self.bench.run(self.spec(method))

    def spec(self, method: str) -> Any:
        """Return the round's job for one of `METHODS`."""
        recipe, scores = METHODS[method](self.variant), self.scores.get(SCORES.get(method, ""), {})
        return self.bench.round_spec(recipe, [self.prototype], self.updates, datasets=self.datasets, scores=scores)


def world(folder: Path, seed: int, variant: Variant, test: Array, test_labels: Array) -> World:
    """Draw the data, train the clients and their discriminators; labels of the test set are what agreement is with."""
    bench, rng = Bench(folder, TASK, seed), np.random.default_rng([1, seed])
    data = client_data(variant.shared, rng)
    server = rng.uniform(-EDGE, EDGE, (300, 2))
    network = NetworkRef(architecture="mlp", options=dict(HIDDEN))
    prototype = bench.begin(PrototypeSpec(name="main", network=network))[0]
    samples = [bench.samples(*each) for each in data]
    updates = [
        bench.train(client, prototype, mine, variant.local) for client, mine in zip(CLIENTS, samples, strict=True)
    ]
    datasets = Datasets(unlabeled=bench.dataset("server", server), test=bench.dataset("test", test, test_labels))
    made = World(bench, variant, prototype, data, updates, datasets, {}, server, test)
    for link in ("sigmoid", "double_sigmoid"):
        trained = {
            client: bench.discriminator(client, mine, fakes_from(server, seed), variant.plan, link)
            for client, mine in zip(CLIENTS, samples, strict=True)
        }
        made.scores[link] = bench.score(trained, variant.plan, datasets)
    made.scores["true"] = _true_scores(made)
    return made


def _true_scores(world: World) -> dict[str, Path]:
    """Write ln p_k as scores: weights are then n_k p_k / sum n p. The largest of each sample is taken off first, which
    changes no weight and keeps the clip of the odds away from those that count.
    """
    found = {}
    logs = {
        name: np.log(np.maximum(densities(points, world.variant.shared), 1e-300))
        for name, points in (("unlabeled", world.server), ("test", world.test))
    }
    for index, client in enumerate(CLIENTS):
        found[client] = world.bench.folder / f"true-{client}.safetensors"
        rows = {name: (log - log.max(0))[index].astype(np.float32) for name, log in logs.items()}
        write_file(found[client], rows)
    return found


# -------------------------------------------------------------------------------------------------------------- methods
def _recipe(name: str, weigh: Mapping[str, Any]) -> Any:
    def make(variant: Variant) -> Recipe:
        schedule = {
            "optimizer": {"kind": "adam", "lr": 1e-3}, "batch_size": 64, "epochs": variant.distillation,
            "lr": "constant", "clip_norm": None, "early_stop": None,
        }  # fmt: skip
        return presets.build(name, {"weigh": dict(weigh), "schedule": schedule})

    return make


METHODS = {
    "uniform": _recipe("feddf", {"kind": "uniform"}),
    "variance": _recipe("feddf", {"kind": "variance", "space": "logits"}),
    "variance-probs": _recipe("feddf", {"kind": "variance", "space": "probs"}),
    "entropy": _recipe("feddf", {"kind": "entropy"}),
    "dafkd": _recipe("fedgo-small", {"kind": "dafkd"}),
    "fedgo-sigmoid": _recipe("fedgo-small", {"kind": "odds", "link": "sigmoid"}),
    "fedgo-double": _recipe("fedgo-small", {"kind": "odds", "link": "double_sigmoid"}),
    "true": _recipe("fedgo-small", {"kind": "odds", "link": "sigmoid"}),
}
SCORES = {"dafkd": "sigmoid", "fedgo-sigmoid": "sigmoid", "fedgo-double": "double_sigmoid", "true": "true"}
