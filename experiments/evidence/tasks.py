"""Kinds of task beside classification: does a student of the clients' ensemble beat their average there?"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.tasks import TASKS, TaskKind
from contract.wire.federations import FederationCreate
from experiments.evidence.verdicts import Section, Setting, Verdict, spread
from potstill.simulate.config import SimulatedClient, SimulationConfig
from potstill.simulate.datasets import read_texts
from potstill.simulate.engine import Simulation
from potstill.simulate.made import diabetes, digit_pairs, next_tokens, shapes

ROUNDS, VOCABULARY, LENGTH = 8, 256, 16
Pair = tuple[NDArray[Any], NDArray[Any]]

TEXT = """\
Two arms on the same data, first weights and mini-batches: FedAvg, and FedDF, whose student starts at the same average
and learns from the mean of the clients' outputs. {rounds} rounds, five local epochs (Adam 1e-3, batch 16), five epochs
of distillation (Adam 1e-3, batch 32). Clients differ. `multilabel`: pairs of scikit-learn's digits side by side, a
label a digit that is there, five clients by the digit on the left. `regression`: its diabetes data, five clients by the
quintile of the value. `dense`: images of 16 x 16 pixels made by a script, a disc or a square under noise, four clients
of one shape each. `tokens`: the next token of AG News (2,000 texts of {length} tokens, {vocabulary} ids), four clients
by topic; it needs the data set, which is not part of potstill. A fifth of each set is the server's, another the test's.

Above 0 FedDF is better, whichever way the metric points: shares in percentage points, others in their own unit. None of
the papers speaks of these tasks, so there are no bars.
"""


@dataclass(frozen=True)
class Data:
    """One seed's data of one kind: the task, its network, the clients' samples, the server's inputs, the test set."""

    task: dict[str, Any]
    network: dict[str, Any]
    clients: list[Pair]
    unlabeled: NDArray[Any]
    test: Pair


def _split(pair: Pair, by: NDArray[Any], clients: int, rng: np.random.Generator) -> tuple[list[Pair], Pair, Pair]:
    """Return the clients' shares, samples in the order of `by`, and two fifths dealt at random before: server, test."""
    order = rng.permutation(len(by))
    fifth = len(order) // 5
    server, test, rest = order[:fifth], order[fifth : 2 * fifth], order[2 * fifth :]
    rest = rest[np.argsort(by[rest], kind="stable")]
    x, y = pair
    return [(x[part], y[part]) for part in np.array_split(rest, clients)], (x[server], y[server]), (x[test], y[test])


def _multilabel(rng: np.random.Generator, _: Path | None) -> Data:
    made = digit_pairs(rng)
    shares, server, test = _split((made.inputs, made.labels), made.dealt_by, 5, rng)
    task = {"kind": "multilabel", "num_classes": 10, "input": {"shape": [1, 8, 16]}}
    return Data(task, {"architecture": "mlp", "options": {"hidden": [64]}}, shares, server[0], test)


def _regression(rng: np.random.Generator, _: Path | None) -> Data:
    made = diabetes()
    shares, server, test = _split((made.inputs, made.labels), made.labels[:, 0], 5, rng)
    task = {"kind": "regression", "num_classes": 1, "input": {"shape": [10]}}
    return Data(task, {"architecture": "mlp", "options": {"hidden": [32]}}, shares, server[0], test)


def _dense(rng: np.random.Generator, _: Path | None) -> Data:
    made = [shapes(rng, 60, (1 + number % 2,)) for number in range(4)] + [shapes(rng, 120, (1, 2)) for _ in range(2)]
    *clients, server, test = [(each.inputs, each.labels) for each in made]
    task = {"kind": "dense", "num_classes": 3, "input": {"shape": [1, 16, 16]}}
    network = {"architecture": "unet-small", "options": {"width": 8}}
    return Data(task, network, clients, server[0], test)


def _tokens(rng: np.random.Generator, folder: Path | None) -> Data | None:
    path = None if folder is None else folder / "agnews" / "train-10k.jsonl.gz"
    if path is None or not path.is_file():
        return None
    texts = read_texts(path, VOCABULARY, LENGTH)
    chosen = texts.take(rng.permutation(len(texts))[:2000].tolist())
    shares, server, test = _split((chosen.inputs, next_tokens(chosen.inputs)), chosen.labels, 4, rng)
    task = {"kind": "tokens", "num_classes": VOCABULARY, "input": {"shape": [LENGTH], "dtype": "int64"}}
    network = {"architecture": "transformer-causal-tiny", "options": {"vocab_size": VOCABULARY}}
    return Data(task, network, shares, server[0], test)


MAKE: dict[TaskKind, Callable[[np.random.Generator, Path | None], Data | None]] = {
    "multilabel": _multilabel,
    "regression": _regression,
    "dense": _dense,
    "tokens": _tokens,
}


def _figures(data: Data, recipe: str, seed: int, folder: Path) -> dict[str, float]:
    """Return the figures of the last round's model."""
    adam = {"kind": "adam", "lr": 1e-3}
    schedule = {"epochs": 5, "batch_size": 32, "optimizer": adam}
    body = FederationCreate.model_validate(
        {
            "name": recipe,
            "task": data.task,
            "prototypes": [data.network],
            "recipe": {"name": recipe, "options": {"schedule": schedule} if recipe == "feddf" else {}},
            "local": {"optimizer": adam, "epochs": 5, "batch_size": 16},
            "rounds": {"total": ROUNDS, "min_updates": len(data.clients)},
            "seed": seed,
        }
    )
    clients = [SimulatedClient(f"client-{number}", pair) for number, pair in enumerate(data.clients)]
    server = {"unlabeled": data.unlabeled, "test": data.test}
    history = Simulation(SimulationConfig(body, clients, server, folder / recipe, threads=1, keep_models=False)).run()
    figures: dict[str, float] = history.rounds[-1].metrics["model"]["measures"]["main"]
    return figures


def run(setting: Setting) -> Section:
    """Compare the two arms on every kind of task; tokens only where AG News is."""
    verdicts: list[Verdict] = []
    for kind, make in MAKE.items():
        found: dict[str, list[dict[str, float]]] = {"fedavg": [], "feddf": []}
        for seed in setting.seeds:
            data = make(np.random.default_rng(seed), setting.data_dir)
            if data is None:
                break
            for recipe, figures in found.items():
                figures.append(_figures(data, recipe, seed, setting.folder / f"{kind}-{seed}"))
            setting.progress(f"{kind}, seed {seed}: {found['fedavg'][-1]} {found['feddf'][-1]}")
        verdicts += _rows(kind, found) if found["feddf"] else []
    text = TEXT.format(rounds=ROUNDS, length=LENGTH, vocabulary=VOCABULARY)
    return Section(text, verdicts)


def _rows(kind: TaskKind, found: dict[str, list[dict[str, float]]]) -> list[Verdict]:
    rows = []
    for metric in TASKS[kind].metrics:
        scale, sign = 100 if metric.is_share else 1, 1 if metric.higher_is_better else -1
        arms = {arm: [scale * figures[metric.name] for figures in runs] for arm, runs in found.items()}
        gains = [sign * (b - a) for a, b in zip(arms["fedavg"], arms["feddf"], strict=True)]
        ahead = sum(gain > 0 for gain in gains)
        shown = " against ".join(f"{mean(arms[arm]):.3g}" for arm in ("feddf", "fedavg"))
        said = f"{mean(gains):+.2g}{spread(gains)}, ahead in {ahead} of {len(gains)} ({shown})"
        rows.append(Verdict(f"{kind}, {metric.name}: FedDF over FedAvg", "–", said, "–", None))
    return rows
