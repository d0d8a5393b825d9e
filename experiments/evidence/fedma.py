"""FedMA on digits against FedAvg and FedDF, one round and five, for an MLP and for convolutions like VGG's.

Devices of FedMA start at networks of their own; those of the others at one, as they are meant to.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contract.local import Adam, ClientObjective, FedMaObjective, LocalPlan, SgdObjective
from contract.recipes import parts, presets
from contract.recipes.recipe import Recipe
from experiments.evidence import plots
from experiments.evidence.harness import Array, Bench, task_of, with_weights
from experiments.evidence.verdicts import Section, Setting, Verdict, ahead, level
from potstill.demo.data import CLASSES, SHAPE, split
from potstill.demo.methods import SCHEDULE
from worker.specs import Datasets, NetworkRef, PrototypeSpec

CLIENTS, ALPHA, ROUNDS = 5, 0.5, 5
APART = "own starts averaged"
BARS = {"MLP": (25, 0), "convnet": (None, None)}
"""Network -> points that FedMA must be ahead of own starts averaged, and with room of FedAvg, in one round."""
TEXT = """\
scikit-learn's digits: 723 images on five devices, split by Dirichlet(0.5), all of them in every round; 719 unlabelled
images on the server for FedDF; 355 test images. MLP 64-128-128-10, 40 local epochs; `convnet` (three convolutions with
pooling, two linear layers, as a small VGG without BatchNorm) on the images at three times their size, 20 local epochs;
Adam 1e-3, batch 32; FedDF distils for ten epochs. FedAvg and FedDF start at one model, FedMA's devices at networks of
their own.

*FedMA* is the preset: all units, sigma 1, gamma 7; a layer more is frozen each round. *FedMA with room* starts at half
of the units and takes units for one only where they are alike (sigma 0.1, gamma 1), so layers grow in the first round.
Both weight classes in the last layer by label counts. *Last layer by class* is FedAvg with that alone, and *own starts
averaged* the mean of networks that started apart, which matching is there to mend.

For the MLP matching mends it, and with room to grow one round is ahead of FedAvg's; but label counts alone bring FedAvg
as far. For the convolutions one round mends little. After five rounds FedAvg is level or ahead for both: devices that
start at one model keep its order of units, so there is nothing to match, and frozen layers cost.

A seed takes more than a minute, so there are three and bars are on means: ahead in three of three would be no bar.
"""


@dataclass(frozen=True)
class Net:
    """A network, and what its devices see and do.

    Attributes:
        name: in the table.
        network: architecture and options.
        scale: how many times an image's pixels are repeated along each edge.
        epochs: of local training in a round.
    """

    name: str
    network: NetworkRef
    scale: int
    epochs: int


@dataclass(frozen=True)
class Arm:
    """One method: its recipe, its devices' objective, and how many rounds of it are looked at."""

    recipe: Recipe
    objective: ClientObjective = SgdObjective()
    rounds: int = ROUNDS


NETS = (
    Net("MLP", NetworkRef(architecture="mlp", options={"hidden": [128, 128]}), 1, 40),
    Net("convnet", NetworkRef(architecture="convnet"), 3, 20),
)
ARMS = {
    "FedAvg": Arm(presets.build("fedavg")),
    "FedDF": Arm(presets.build("feddf", {"schedule": SCHEDULE})),
    "FedMA": Arm(presets.build("fedma"), FedMaObjective()),
    "FedMA with room": Arm(
        presets.build("fedma", {"fuse": parts.FuseMatchedMean(by_class=True, sigma=0.1, gamma=1.0).model_dump()}),
        FedMaObjective(start_width=0.5),
    ),
    "last layer by class": Arm(
        presets.build("fedavg", {"fuse": parts.FuseMatchedMean(by_class=True, count="samples").model_dump()}), rounds=1
    ),
    APART: Arm(presets.build("fedavg"), FedMaObjective(), rounds=1),
}


def federate(folder: Path, seed: int, net: Net, arm: Arm) -> list[float]:
    """Return the test accuracy of each round."""
    data = split(seed, CLIENTS, ALPHA)
    bench = Bench(folder, task_of(CLASSES, 1, *(edge * net.scale for edge in SHAPE[1:])), seed)
    model = bench.begin(PrototypeSpec(name="main", network=net.network))[0]
    datasets = Datasets(
        unlabeled=bench.dataset("server", enlarged(data.server.inputs, net.scale)),
        test=bench.dataset("test", enlarged(data.test.inputs, net.scale), data.test.labels),
    )
    plan = LocalPlan(objective=arm.objective, optimizer=Adam(), epochs=net.epochs, batch_size=32)
    found = []
    for index in range(1, arm.rounds + 1):
        updates = []
        for number, part in enumerate(data.clients):
            samples = bench.samples(enlarged(part.inputs, net.scale), part.labels)
            update = bench.train(f"device-{number}", model, samples, plan, index=index)
            counts = np.bincount(part.labels, minlength=CLASSES).tolist()
            updates.append(update.model_copy(update={"label_counts": counts}))
        result = bench.fuse(
            arm.recipe, [model], updates, datasets=datasets, round_index=index, rounds_total=arm.rounds, local=plan
        )
        model = with_weights(model, result.models["main"])
        found.append(result.metrics["accuracy"])
    return found


def enlarged(images: Array, scale: int) -> Array:
    """Return images [N, 1, h, w] with every pixel `scale` times along both edges."""
    return images.repeat(scale, axis=2).repeat(scale, axis=3)


def run(setting: Setting) -> Section:
    """One round and five, of every method and network."""
    verdicts, pictures = list[Verdict](), dict[str, str]()
    for net in NETS:
        runs: dict[str, list[list[float]]] = {name: [] for name in ARMS}
        for seed in setting.seeds:
            setting.progress(f"FedMA, {net.name}, seed {seed}")
            for name, arm in ARMS.items():
                with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
                    runs[name].append(federate(Path(folder), seed, net, arm))
        verdicts += judge(net.name, runs)
        pictures[f"accuracy per round, {net.name}"] = _picture(setting, net.name, runs)
    return Section(TEXT, verdicts, pictures)


def judge(net: str, runs: Mapping[str, Sequence[Sequence[float]]]) -> list[Verdict]:
    """Return the verdicts on one network: accuracies by method, seed and round."""
    first = {name: [accuracies[0] for accuracies in by_seed] for name, by_seed in runs.items()}
    fifth = {
        name: [accuracies[-1] for accuracies in by_seed] for name, by_seed in runs.items() if ARMS[name].rounds > 1
    }
    mended, ahead_by = BARS[net]
    return [
        ahead(f"{net}, one round: FedMA minus own starts averaged", mended, first["FedMA"], first[APART], "–"),
        ahead(
            f"{net}, one round: FedMA with room minus FedAvg", ahead_by, first["FedMA with room"], first["FedAvg"], "–"
        ),
        *(level(f"{net}, one round: {name}", None, values, "–") for name, values in first.items()),
        *(level(f"{net}, five rounds: {name}", None, values, "–") for name, values in fifth.items()),
    ]


def _picture(setting: Setting, net: str, runs: Mapping[str, Sequence[Sequence[float]]]) -> str:
    curves = {}
    for name, by_seed in runs.items():
        means = (100 * np.mean(by_seed, axis=0)).tolist()
        if len(means) > 1:
            curves[name] = (range(1, len(means) + 1), means)
    return plots.lines(
        setting.images / f"evidence-fedma-{net.lower()}.png", f"digits, {net}, mean over seeds", curves,
        ("round", "test accuracy (%)"),
    )  # fmt: skip
