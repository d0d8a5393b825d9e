"""Adapters against full training: bytes a round and accuracy, of a text encoder that the server has trained a little.

python -m experiments.adapters                                # texts that are made up here; a minute
python -m experiments.adapters --data agnews --data-dir DATA  # AG News, from a folder of one's own
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from contract.tokenizer import HashingTokenizer
from contract.wire.federations import FederationCreate
from potstill.samples import Samples
from potstill.simulate import datasets, partition
from potstill.simulate.config import SimulatedClient, SimulationConfig
from potstill.simulate.engine import Simulation
from potstill.simulate.history import History

LORA = ["head.*", "*.lora_*"]
CLASSES = 4


@dataclass(frozen=True)
class Arm:
    """What devices train.

    Attributes:
        options: of the network, beside its vocabulary.
        prototype: what of it is trained.
        lr: of the devices' Adam.
    """

    options: dict[str, Any]
    prototype: dict[str, Any]
    lr: float


def arms(rank: int) -> dict[str, Arm]:
    """Return what is compared, by name."""
    lora = {"lora_rank": rank}
    return {
        "all tensors": Arm({}, {}, 1e-3),
        f"LoRA {rank}, factors": Arm(lora, {"trains": LORA}, 5e-3),
        f"LoRA {rank}, a_frozen": Arm(lora, {"trains": LORA, "lora": "a_frozen"}, 5e-3),
        "head": Arm({}, {"trains": ["head.*"]}, 5e-3),
    }


@dataclass(frozen=True)
class Split:
    """Who has what: labelled texts of the server to begin with, the clients' own, and those that measure."""

    vocabulary: int
    server: Samples
    clients: list[Samples]
    test: Samples


def made_up(count: int, seed: int, words: int = 12) -> Samples:
    """Return texts of four topics: each word is of the topic's 60, or of 300 that all topics have."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    texts = []
    for label in labels:
        own = random.random(words) < 0.25
        numbers = np.where(own, 1000 * (label + 1) + random.integers(0, 60, words), random.integers(0, 300, words))
        texts.append(" ".join(f"w{number}" for number in numbers))
    return Samples(HashingTokenizer(2048, 32).encode_all(texts), labels.astype(np.int64))


def split(data: str, folder: Path | None, seed: int, server: int, samples: int, clients: int, alpha: float) -> Split:
    """Return the samples of a run, drawn by its seed."""
    random = np.random.default_rng(seed)
    if data == "made-up":
        train, test, vocabulary = made_up(server + samples, seed), made_up(1000, seed + 10_000), 2048
    else:
        loaded = datasets.load(data, folder)
        assert loaded.test is not None
        train, test, vocabulary = loaded.train, loaded.test, datasets.VOCABULARY
    order = random.permutation(len(train))
    rest = train.take(order[server : server + samples].tolist())
    shares = partition.dirichlet(rest.labels, clients, alpha, random)
    measured = test.take(random.permutation(len(test))[:2000].tolist())
    return Split(vocabulary, train.take(order[:server].tolist()), [rest.take(share) for share in shares], measured)


def body(found: Split, arm: Arm, rounds: int, epochs: int, seed: int) -> FederationCreate:
    """Return what would create the federation."""
    options = {"vocab_size": found.vocabulary, **arm.options}
    return FederationCreate.model_validate(
        {
            "name": "adapters",
            "task": {"num_classes": CLASSES, "input": {"shape": [32], "dtype": "int64"}},
            "prototypes": [{"architecture": "transformer-tiny", "options": options, **arm.prototype}],
            "recipe": {"name": "fedavg"},
            "local": {"optimizer": {"kind": "adam", "lr": arm.lr}, "epochs": epochs},
            "rounds": {"total": rounds, "min_updates": 1},
            "seed": seed,
        }
    )


def run(
    folder: Path, request: FederationCreate, clients: Sequence[Samples], test: Samples, start: Path | None
) -> History:
    """Run a federation of these clients from a network's file, or from the seed."""
    devices = [SimulatedClient(f"c{number:02}", (each.inputs, each.labels)) for number, each in enumerate(clients)]
    models = {} if start is None else {"main": start}
    server = {"test": (test.inputs, test.labels)}
    config = SimulationConfig(request, devices, server, folder, threads=1, initial_models=models)
    return Simulation(config).run()


@dataclass(frozen=True)
class Row:
    """What an arm has cost and reached: accuracies in [0, 1], bytes a device, of the first round and of each other."""

    before: float
    after: float
    first: float
    down: float
    up: float


def measure(history: History, clients: int) -> Row:
    """Return the figures of a run."""
    costs = [record.cost for record in history.rounds]
    assert history.initial.accuracy is not None
    assert all(cost is not None for cost in costs)
    down = [cost.files.down / clients for cost in costs if cost is not None]
    up = fmean(cost.files.up / clients for cost in costs if cost is not None)
    reached = [record.accuracy for record in history.rounds[-3:] if record.accuracy is not None]
    return Row(history.initial.accuracy, fmean(reached), down[0], fmean(down[1:]), up)


def compare(given: argparse.Namespace) -> dict[str, list[Row]]:
    """Return the figures of every arm, a row a seed."""
    found: dict[str, list[Row]] = {name: [] for name in arms(given.rank)}
    for seed in range(given.seeds):
        parts = split(given.data, given.data_dir, seed, given.server, given.samples, given.clients, given.alpha)
        with tempfile.TemporaryDirectory() as folder:
            request = body(parts, Arm({}, {}, 1e-3), 1, given.pretrain, seed)
            start = run(Path(folder, "start"), request, [parts.server], parts.test, None).models["main"]
            for number, (name, arm) in enumerate(arms(given.rank).items()):
                request = body(parts, arm, given.rounds, given.epochs, seed)
                history = run(Path(folder, str(number)), request, parts.clients, parts.test, start)
                found[name].append(measure(history, given.clients))
    return found


def _spread(values: Sequence[float]) -> str:
    return f"{100 * fmean(values):.1f} ± {100 * stdev(values) if len(values) > 1 else 0:.1f}"


def table(found: dict[str, list[Row]]) -> str:
    """Return the comparison in Markdown."""
    lines = [
        "| trained | accuracy, last three rounds | before | bytes down, first round | down, later | up |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, rows in found.items():
        sizes = [fmean(getattr(row, what) for row in rows) for what in ("first", "down", "up")]
        told = " | ".join(f"{size:,.0f}" for size in sizes)
        accuracies = [_spread([getattr(row, what) for row in rows]) for what in ("after", "before")]
        lines.append(f"| {name} | {' | '.join(accuracies)} | {told} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser("python -m experiments.adapters", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default="made-up", help="made-up, agnews")
    parser.add_argument("--data-dir", type=Path, help="folder of agnews; default POTSTILL_DATA_DIR")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--server", type=int, default=1000, help="labelled texts that the server begins with")
    parser.add_argument("--pretrain", type=int, default=4, help="epochs on them")
    parser.add_argument("--samples", type=int, default=3000, help="texts of all clients together")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--alpha", type=float, default=0.3, help="of Dirichlet")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rank", type=int, default=4)
    print(table(compare(parser.parse_args(arguments))))


if __name__ == "__main__":
    main()
