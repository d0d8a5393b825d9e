"""One bit a weight on digits: whether error feedback helps FedAvg and FedDF, of weights or of their change."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean

import numpy as np
from torch import nn

from client_sdk import models as device_models
from contract import lowbit
from contract.local import Adam, BinaryPrecision, LocalPlan
from contract.nn import codec
from contract.recipes import presets
from contract.recipes.recipe import Recipe
from contract.tensors import TensorFile, write_file
from contract.updates import binary_weights
from contract.wire.federations import Prototype
from experiments.evidence import plots
from experiments.evidence.harness import Array, Bench, task_of, with_weights
from experiments.evidence.verdicts import Section, Setting, Verdict, ahead, level
from potstill.demo.data import CLASSES, SHAPE, split
from potstill.demo.methods import SCHEDULE
from worker.specs import Datasets, NetworkRef, PrototypeSpec

CLIENTS, ALPHA, ROUNDS, EPOCHS = 5, 0.5, 5, 10
BARS = {"FedAvg": None, "FedDF": -1}
"""Recipe -> points that weights may be behind weights with feedback; None where fresh seeds did not bear such a bar."""
NETWORK = NetworkRef(architecture="mlp", options={"hidden": [128, 128]})
TEXT = """\
scikit-learn's digits: 723 images on five devices, split by Dirichlet(0.5), all of them in each of five rounds; 719
unlabelled images on the server for FedDF; 355 test images. MLP 64-128-128-10, whose middle weight is binarised; ten
local epochs of Adam 1e-3, batch 32, through the rounded weight; FedDF distils for ten epochs. Figures are means over
the rounds.

*Weights* is what the product does: a device sends one bit a weight and a scale a channel. *Feedback* adds what rounding
lost to what is rounded in the next round. Of weights, that is a residual as large as the weights themselves, of a model
that is no longer there. Of the *change* since the model was sent, it is what error feedback is made for.

Under FedDF neither helps. Under FedAvg bits of the weights alone are level with weights with feedback for the seeds 0
to 19, but a point behind for the fresh ones: a bar of -1 on that difference was missed by them, so it is reported and
not judged. Bits of the change are behind bits of the weights in the mean, with feedback or without. The option
`error_feedback`, which carried the weights' residual, went when three seeds had shown no gain from it.
"""

State = dict[str, Array]
Rule = Callable[[State, State, State], tuple[State, State]]
"""(weights after training, as they were sent, residuals of the round before) -> (what is read of them, residuals)."""


def _rounded(given: State, memory: State) -> tuple[State, State]:
    found = {name: lowbit.binarize(each, memory.get(name)) for name, each in given.items()}
    return {name: each.binary for name, each in found.items()}, {name: each.memory for name, each in found.items()}


def full(trained: State, sent: State, memory: State) -> tuple[State, State]:
    """Send the weights as they are."""
    return trained, {}


def weights(trained: State, sent: State, memory: State) -> tuple[State, State]:
    """Send one bit of each weight."""
    return _rounded(trained, {})[0], {}


def weights_with_feedback(trained: State, sent: State, memory: State) -> tuple[State, State]:
    """Add what rounding lost of the weights of the round before."""
    return _rounded(trained, memory)


def change(trained: State, sent: State, memory: State) -> tuple[State, State]:
    """Send one bit of each weight's change."""
    return change_with_feedback(trained, sent, {})[0], {}


def change_with_feedback(trained: State, sent: State, memory: State) -> tuple[State, State]:
    """Add what rounding lost of the change of the round before."""
    made, kept = _rounded({name: each - sent[name] for name, each in trained.items()}, memory)
    return {name: sent[name] + each for name, each in made.items()}, kept


ARMS: dict[str, Rule] = {
    "full precision": full,
    "weights": weights,
    "weights, feedback": weights_with_feedback,
    "change": change,
    "change, feedback": change_with_feedback,
}
RECIPES: dict[str, Recipe] = {
    "FedAvg": presets.build("fedavg"),
    "FedDF": presets.build("feddf", {"schedule": SCHEDULE}),
}


def federate(folder: Path, seed: int, recipe: Recipe, rule: Rule, rounds: int = ROUNDS) -> list[float]:
    """Return the test accuracy of each round."""
    data = split(seed, CLIENTS, ALPHA)
    bench = Bench(folder, task_of(CLASSES, *SHAPE), seed)
    model = bench.begin(PrototypeSpec(name="main", network=NETWORK))[0]
    datasets = Datasets(
        unlabeled=bench.dataset("server", data.server.inputs),
        test=bench.dataset("test", data.test.inputs, data.test.labels),
    )
    precision = None if rule is full else BinaryPrecision()
    plan = LocalPlan(optimizer=Adam(), epochs=EPOCHS, batch_size=32, precision=precision)
    told = Prototype(name="main", architecture=NETWORK.architecture, options=NETWORK.options)
    memories: list[State] = [{} for _ in data.clients]
    found = []
    for index in range(1, rounds + 1):
        updates = []
        for number, part in enumerate(data.clients):
            module = device_models.make(told, bench.task, None)
            samples = bench.samples(part.inputs, part.labels)
            update, _ = bench.train_module(f"device-{number}", model, module, samples, plan, index=index)
            assert model.network.weights is not None
            path = update.weights.with_suffix(".read")
            memories[number] = _write_as_read(path, module, model.network.weights, rule, memories[number])
            updates.append(update.model_copy(update={"weights": path}))
        result = bench.fuse(recipe, [model], updates, datasets=datasets, round_index=index, rounds_total=rounds)
        model = with_weights(model, result.models["main"])
        found.append(result.metrics["accuracy"])
    return found


def _write_as_read(path: Path, module: nn.Module, base: Path, rule: Rule, memory: State) -> State:
    """Write what the server has of a device's float weights once a rule has sent them; return the residuals."""
    state = codec.state_arrays(module.state_dict())
    with TensorFile(base) as file:
        names, metadata = binary_weights(file.header), file.header.metadata
        sent = {name: file.read(name) for name in names}
    made, kept = rule({name: state[name] for name in names}, sent, memory)
    write_file(path, state | {name: each.astype(np.float32) for name, each in made.items()}, metadata)
    return kept


def run(setting: Setting) -> Section:
    """Run every rule under both recipes."""
    runs: dict[str, dict[str, list[list[float]]]] = {name: {arm: [] for arm in ARMS} for name in RECIPES}
    for seed in setting.seeds:
        setting.progress(f"one bit a weight, seed {seed}")
        for name, recipe in RECIPES.items():
            for arm, rule in ARMS.items():
                with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
                    runs[name][arm].append(federate(Path(folder), seed, recipe, rule))
    return Section(TEXT, judge(runs), {"accuracy per round under FedDF": _picture(setting, runs["FedDF"])})


def judge(runs: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> list[Verdict]:
    """Return the verdicts: accuracies by recipe, rule, seed and round."""
    found = []
    for name, by_arm in runs.items():
        means = {arm: [mean(accuracies) for accuracies in by_seed] for arm, by_seed in by_arm.items()}
        plain = means["weights"]
        found += [
            ahead(f"{name}: weights minus weights with feedback", BARS[name], plain, means["weights, feedback"], "–"),
            ahead(f"{name}: weights minus change with feedback", -1, plain, means["change, feedback"], "–"),
            *(level(f"{name}: {arm}", None, values, "–") for arm, values in means.items()),
        ]
    return found


def _picture(setting: Setting, by_arm: Mapping[str, Sequence[Sequence[float]]]) -> str:
    curves = {}
    for arm, by_seed in by_arm.items():
        means = (100 * np.mean(by_seed, axis=0)).tolist()
        curves[arm] = (range(1, len(means) + 1), means)
    return plots.lines(
        setting.images / "evidence-bits.png", "digits, FedDF, mean over seeds", curves, ("round", "test accuracy (%)")
    )
