"""FedGO's Table 4 on one GPU: rounds to 60 % on CIFAR-10 of FedGO, FedDF and FedAvg, alpha 0.1, ResNet-18.

    python -m experiments.bench.gpu_fedgo --data FOLDER --out OUT  # FOLDER/cifar10/*.safetensors; ten minutes, one H100
    python -m experiments.bench.gpu_fedgo --toy --out OUT          # a minute on a CPU, made-up images, the same code

Devices train by the SDK's functions and rounds are fused by the worker's pipeline, as in the service, with files in
between. All methods share split, first model, participation and the first round's client models. After every round of
FedGO and FedDF the ensemble's accuracy is measured under six weightings of the same client models (FedGO Fig. 2).

What differs from the paper: 24,000 client and 7,000 server images (25,000 each there), 5,000 test images; the
discriminators' fakes are the server images themselves (G0) instead of a generator's, because 100,000 WGAN-GP steps do
not fit; networks run in bfloat16 (autocast). Methods take turns until each has reached the target or the time is up
(--budget). Several processes train clients at once, since one with batches of 64 leaves a large GPU idle.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from client_sdk import data as device_data
from contract.local import Adam, DiscriminatorPlan, LocalPlan
from contract.recipes import presets
from contract.tensors import TensorFile, write_file
from contract.wire.federations import Prototype
from contract.wire.plans import RoundsPlan
from experiments.evidence import plots
from experiments.evidence.harness import Bench, fakes_from, task_of, with_weights
from potstill.samples import Samples
from potstill.simulate.datasets import load
from potstill.simulate.loaded import Loaded
from potstill.simulate.partition import dirichlet
from service.domain.selection import choose
from worker.specs import Datasets, NetworkRef, PrototypeSpec, UpdateSpec

LINKS = ("double_sigmoid", "sigmoid")
RANGE = (0.0, 1.0)
METHODS = ("fedgo", "feddf", "fedavg")
WEIGHTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "uniform": ({"kind": "uniform"}, ""),
    "variance": ({"kind": "variance", "space": "logits"}, ""),
    "entropy": ({"kind": "entropy"}, ""),
    "dafkd": ({"kind": "dafkd"}, "sigmoid"),
    "fedgo": ({"kind": "odds", "link": "double_sigmoid"}, "double_sigmoid"),
    "fedgo plain odds": ({"kind": "odds", "link": "sigmoid"}, "sigmoid"),
}
"""Name -> the recipe's part, and through which link its discriminators were trained."""


@dataclass(frozen=True)
class Size:
    """How large the experiment is.

    Attributes:
        architecture: of the classifier; `discriminator` of the discriminator.
        clients: registered; `asked` of them train in a round.
        rounds: at most, a method.
        total: rounds over which the server's rate falls (FedGO's cosine).
        epochs: of a client; `server_epochs` of the student, `discriminator_epochs` of a discriminator.
        target: accuracy at which a method stops.
        train, server, test: images at most; None for all.
    """

    architecture: str = "resnet-18"
    discriminator: str = "disc-cnn-4"
    clients: int = 20
    asked: int = 8
    rounds: int = 10
    total: int = 100
    epochs: int = 30
    server_epochs: int = 10
    discriminator_epochs: int = 30
    target: float = 0.6
    train: int | None = None
    server: int | None = None
    test: int | None = None


TOY = Size(
    "resnet-8", "disc-cnn-mlp", clients=4, asked=2, rounds=2, total=4, epochs=6, server_epochs=4,
    discriminator_epochs=4, train=400, server=128, test=200,
)  # fmt: skip


@dataclass(frozen=True)
class Where:
    """What a process needs to train for the federation: it makes its own files under `folder`."""

    folder: Path
    seed: int
    device: str
    size: Size

    def bench(self, name: str) -> Bench:
        """Return a federation's folder of one's own."""
        return Bench(self.folder / name, task_of(10, 3, 32, 32), self.seed, self.device)

    def samples(self, client: str) -> device_data.Samples:
        """Return a client's data."""
        found = device_data.load(self.folder / f"{client}.safetensors")
        found.check(task_of(10, 3, 32, 32))
        return found

    def fast(self) -> AbstractContextManager[Any]:
        """Run networks in bfloat16 on a GPU."""
        return torch.autocast("cuda", dtype=torch.bfloat16) if self.device.startswith("cuda") else nullcontext()


# --------------------------------------------------------------------------------------------------- in other processes
def train(where: Where, client: str, prototype: PrototypeSpec, index: int, method: str) -> UpdateSpec:
    """Train one client for one round."""
    plan = LocalPlan(optimizer=Adam(lr=1e-3), epochs=where.size.epochs, batch_size=64)
    bench = where.bench(f"{method}-{index}-{client}")
    given = Prototype(name="main", architecture=prototype.network.architecture)
    from client_sdk import models

    module = models.make(given, bench.task, None).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with where.fast():
        return bench.train_module(client, prototype, module, where.samples(client), plan, index=index)[0]


def discriminate(where: Where, client: str, link: str) -> Path:
    """Train one client's discriminator on fakes that are the server's images."""
    plan = discriminator_plan(where.size)
    with TensorFile(where.folder / "server.safetensors") as file:
        server = file.read("inputs")
    with where.fast():
        return where.bench(f"discriminator-{link}-{client}").discriminator(
            client, where.samples(client), fakes_from(server, where.seed, RANGE), plan, link, RANGE  # type: ignore[arg-type]
        )  # fmt: skip


def discriminator_plan(size: Size) -> DiscriminatorPlan:
    """Return FedGO's plan (App. E.2)."""
    return DiscriminatorPlan(architecture=size.discriminator, epochs=size.discriminator_epochs, flip=True)


# ----------------------------------------------------------------------------------------------------------------- data
def made_up(seed: int) -> Loaded:
    """Return images of ten classes: smooth patterns and noise, for the toy."""
    rng = np.random.default_rng(seed)
    patterns = np.kron(rng.random((10, 3, 8, 8)), np.ones((4, 4)))

    def samples(number: int) -> Samples:
        labels = np.arange(number, dtype=np.int64) % 10
        noise = 0.5 * rng.standard_normal((number, 3, 32, 32))
        return Samples(np.clip(patterns[labels] + noise, 0, 1).astype(np.float32), labels)

    return Loaded("made-up", 10, samples(400), samples(200), samples(128))


def prepare(where: Where, loaded: Loaded, alpha: float) -> tuple[Datasets, dict[str, int]]:
    """Write everybody's files; return the server's sets and the clients' sizes."""
    size, rng = where.size, np.random.default_rng([9, where.seed])
    assert loaded.server is not None and loaded.test is not None
    pool = loaded.train.take(list(range(len(loaded.train)))[: size.train])
    shares = dirichlet(pool.labels, size.clients, alpha, rng)
    sizes = {}
    for number, share in enumerate(shares):
        name, part = f"client-{number:02}", pool.take(share)
        write_file(where.folder / f"{name}.safetensors", {"inputs": part.inputs, "labels": part.labels})
        sizes[name] = len(share)
    bench = Bench(where.folder, task_of(10, 3, 32, 32), where.seed)
    unlabeled = bench.dataset("server", loaded.server.inputs[: size.server])
    test = bench.dataset("test", loaded.test.inputs[: size.test], loaded.test.labels[: size.test])
    return Datasets(unlabeled=unlabeled, test=test), sizes


# ----------------------------------------------------------------------------------------------------------- federation
@dataclass
class Curve:
    """A method's rounds: test accuracy of its server model, of the average before, of ensembles by weighting."""

    accuracy: list[float] = field(default_factory=list)
    average: list[float] = field(default_factory=list)
    ensembles: list[dict[str, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    reached: int | None = None


@dataclass
class Race:
    """The methods side by side."""

    where: Where
    datasets: Datasets
    sizes: dict[str, int]
    pool: Executor
    scores: dict[str, dict[str, Path]] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=lambda: {method: Curve() for method in METHODS})
    models: dict[str, PrototypeSpec] = field(default_factory=dict)
    first: list[UpdateSpec] = field(default_factory=list)

    def begin(self) -> None:
        """Make the first model, train all discriminators, score the server's sets."""
        bench = self.where.bench("start")
        network = NetworkRef(architecture=self.where.size.architecture)
        self.models = dict.fromkeys(METHODS, bench.begin(PrototypeSpec(name="main", network=network))[0])
        plan = discriminator_plan(self.where.size)
        for link in LINKS:
            jobs = {client: self.pool.submit(discriminate, self.where, client, link) for client in self.sizes}
            trained = {client: job.result() for client, job in jobs.items()}
            self.scores[link] = self.where.bench(f"scores-{link}").score(trained, plan, self.datasets, RANGE)

    def updates(self, method: str, index: int) -> list[UpdateSpec]:
        """Return a round's updates; those of the first round are every method's."""
        if index == 1 and self.first:
            return self.first
        size = self.where.size
        plan = RoundsPlan(total=size.total, clients_per_round=size.asked)
        asked = choose(plan, self.where.seed, index, self.sizes)
        jobs = [self.pool.submit(train, self.where, client, self.models[method], index, method) for client in asked]
        found = [job.result() for job in jobs]
        self.first = self.first or found
        return found

    def round(self, method: str) -> None:
        """Run a method's next round."""
        begun, curve = time.monotonic(), self.curves[method]
        index, size = len(curve.accuracy) + 1, self.where.size
        updates = self.updates(method, index)
        bench = self.where.bench(f"{method}-{index}")
        fields: dict[str, Any] = {"datasets": self.datasets, "round_index": index, "rounds_total": size.total}
        with self.where.fast():
            scores = self.scores["double_sigmoid"] if method == "fedgo" else {}
            result = bench.fuse(recipe(method, size), [self.models[method]], updates, scores=scores, **fields)
            if method != "fedavg":
                curve.ensembles.append(self._ensembles(bench, method, updates, fields))
        kept = self.where.folder / f"model-{method}-{index}.safetensors"
        shutil.copyfile(result.models["main"], kept)
        self.models[method] = with_weights(self.models[method], kept)
        curve.accuracy.append(result.metrics["accuracy"])
        curve.average.append(result.metrics["average"]["accuracy"])
        curve.seconds.append(round(time.monotonic() - begun, 1))
        if curve.reached is None and curve.accuracy[-1] >= size.target:
            curve.reached = index
        shutil.rmtree(bench.folder)
        if index > 1:
            for update in updates:
                shutil.rmtree(update.weights.parent)

    def _ensembles(
        self, bench: Bench, method: str, updates: Sequence[UpdateSpec], fields: dict[str, Any]
    ) -> dict[str, float]:
        """Return the ensemble's test accuracy by weighting; nobody learns."""
        found = {}
        for name, (weigh, link) in WEIGHTINGS.items():
            looked_at = presets.build("fedgo-small" if link else "feddf", {"weigh": weigh} | NOBODY)
            scores = self.scores.get(link, {})
            result = bench.fuse(looked_at, [self.models[method]], updates, scores=scores, **fields)
            found[name] = result.metrics["ensemble"]["accuracy"]
        return found


NOBODY = {"students": {"kind": "none"}, "schedule": {"epochs": 1, "early_stop": None}}


def recipe(method: str, size: Size) -> Any:
    """Return a method's recipe with FedGO's schedule (App. E.2): Adam 1e-3, batch 64, cosine across rounds."""
    if method == "fedavg":
        return presets.build("fedavg")
    schedule = {
        "optimizer": {"kind": "adam", "lr": 1e-3}, "batch_size": 64, "epochs": size.server_epochs,
        "lr": "cosine_across_rounds", "clip_norm": None, "early_stop": None,
    }  # fmt: skip
    return presets.build(method, {"schedule": schedule})


def race(run: Race, budget: float, begun: float, save: Any) -> None:
    """Let the methods take turns, in the order of `METHODS`, until all are done or the time is up."""
    longest = 0.0
    while True:
        waiting = [m for m in METHODS if run.curves[m].reached is None]
        waiting = [m for m in waiting if len(run.curves[m].accuracy) < run.where.size.rounds]
        if not waiting:
            return
        for method in waiting:
            if time.monotonic() - begun + longest > budget:
                print(f"time is up: {budget:.0f} s", flush=True)
                return
            run.round(method)
            curve = run.curves[method]
            longest = max(longest, *curve.seconds)
            line = f"{method} round {len(curve.accuracy)}: {curve.accuracy[-1]:.3f}, average {curve.average[-1]:.3f}"
            if method != "fedavg":
                line += "; ensembles " + ", ".join(f"{name} {value:.3f}" for name, value in curve.ensembles[-1].items())
            print(f"{line} ({curve.seconds[-1]:.0f} s)", flush=True)
            save()


# --------------------------------------------------------------------------------------------------------------- report
def write(run: Race, out: Path, facts: dict[str, Any]) -> None:
    """Write curve.json and the two plots."""
    curves = {method: asdict(curve) for method, curve in run.curves.items()}
    (out / "curve.json").write_text(json.dumps(facts | {"curves": curves}, indent=2) + "\n")
    drawn = {
        method: (list(range(1, len(curve.accuracy) + 1)), [100 * value for value in curve.accuracy])
        for method, curve in run.curves.items()
        if curve.accuracy
    }
    if drawn:
        plots.lines(out / "accuracy.png", f"server model, {facts['what']}", drawn, ("round", "test accuracy (%)"))
    ensembles = run.curves["fedgo"].ensembles
    if ensembles:
        rounds = list(range(1, len(ensembles) + 1))
        by_name = {name: (rounds, [100 * each[name] for each in ensembles]) for name in WEIGHTINGS}
        title = f"ensembles of the same client models, {facts['what']}"
        plots.lines(out / "ensembles.png", title, by_name, ("round", "test accuracy (%)"))


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with cifar10/; made-up images without it (--toy only)")
    parser.add_argument("--out", type=Path, default=Path("bench-report"), help="for curve.json and plots")
    parser.add_argument("--toy", action="store_true", help="tiny, on the CPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=4, help="clients trained at once on the GPU")
    parser.add_argument("--budget", type=float, default=540, help="seconds after which no further round begins")
    parser.add_argument("--epochs", type=int, default=30, help="of a client; the paper's 30")
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.data is None and not given.toy:
        parser.error("--data is needed, unless --toy")
    return given


def main() -> None:
    """Run the race and write what came out after every round."""
    begun, given = time.monotonic(), arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    size = TOY if given.toy else Size(epochs=given.epochs)
    device = "cpu" if given.toy else given.device
    loaded = load("cifar10", given.data) if given.data else made_up(given.seed)
    name = torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
    facts = {
        "what": f"{loaded.name}, alpha {given.alpha:g}, {size.architecture}", "size": asdict(size), "seed": given.seed,
        "fakes": "server images (G0)", "device": name, "precision": "bfloat16" if device != "cpu" else "float32",
    }  # fmt: skip
    several = device.startswith("cuda") and given.processes > 1
    pool = ProcessPoolExecutor(given.processes, get_context("spawn")) if several else ThreadPoolExecutor(1)
    with pool, tempfile.TemporaryDirectory(prefix="potstill-bench-") as folder:
        where = Where(Path(folder), given.seed, device, size)
        datasets, sizes = prepare(where, loaded, given.alpha)
        run = Race(where, datasets, sizes, pool)
        run.begin()
        print(f"discriminators trained, {time.monotonic() - begun:.0f} s", flush=True)
        race(run, given.budget, begun, lambda: write(run, given.out, facts))
        write(run, given.out, facts | {"seconds": round(time.monotonic() - begun, 1)})
    reached = {method: curve.reached for method, curve in run.curves.items()}
    print(f"rounds to {size.target:.0%}: {reached}; {time.monotonic() - begun:.0f} s; written: {given.out}")


if __name__ == "__main__":
    main()
