"""How far Reflux carries: other data, other federations and liars, beside FedAvg, FedDF and FedGO.

    python -m experiments.carry --out carry --data-dir DATA --plot docs/img/reflux-carry.png

Each setting is an experiment of `potstill simulate` in a folder of its own, with the same seeds. What is done already
is read. The table has paired differences of the mean test accuracy over the rounds, in points.
"""

import argparse
import gzip
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from experiments.evidence import plots
from experiments.evidence.verdicts import spread
from potstill.demo.methods import SCHEDULE
from potstill.simulate import experiment
from potstill.simulate.settings import Experiment

BEFORE = ("generator", "discriminators", "score")
"""Folders of a simulation with what comes before its rounds."""
LOSS = {"objective": {"kind": "prior_adjusted_ce"}}
"""Reflux's client loss, for the others."""


def _arm(name: str, local: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return {"name": name, "local": dict(local or {}), "options": options}


AVG, DF, CAPPED, PLAIN = "FedAvg", "FedDF", "FedGO capped", "FedGO plain"
REFLUX, SHARP, SERVER = "Reflux", "Reflux, sharp", "Reflux, server alone"
AND = " + loss"
ARMS = {
    PLAIN: _arm("fedgo-small", link="sigmoid", schedule=SCHEDULE),
    REFLUX: _arm("reflux", schedule=SCHEDULE),
    SHARP: _arm("reflux-sharp", schedule=SCHEDULE),
    PLAIN + AND: _arm("fedgo-small", LOSS, link="sigmoid", schedule=SCHEDULE),
    CAPPED: _arm("fedgo-small", link="double_sigmoid", schedule=SCHEDULE),
    AVG: _arm("fedavg"),
    DF: _arm("feddf", schedule=SCHEDULE),
    SERVER: _arm("reflux-server", schedule=SCHEDULE),
    AVG + AND: _arm("fedavg", LOSS),
    DF + AND: _arm("feddf", LOSS, schedule=SCHEDULE),
    CAPPED + AND: _arm("fedgo-small", LOSS, link="double_sigmoid", schedule=SCHEDULE),
}
ALIKE = (PLAIN, REFLUX, SHARP, PLAIN + AND, SERVER)
"""Arms with the same discriminators, of one sigmoid."""
MAIN = (PLAIN, REFLUX, SHARP, PLAIN + AND, CAPPED, AVG, DF)
"""What is run unless `--arms` says otherwise."""

_TWENTY: dict[str, Any] = {"clients": 20, "clients_per_round": 4, "rounds": 10}
_MNIST = _TWENTY | {"data": "mnist", "samples": 2000, "server_samples": 600, "test_samples": 1000}
_HUNDRED = _MNIST | {"clients": 100, "clients_per_round": 10, "samples": 4000}
_TEXT = _TWENTY | {"data": "agnews.npz", "samples": 2000, "server_samples": 1000, "test_samples": 2000}
_CIFAR = _TWENTY | {
    "data": "cifar10", "samples": 3000, "server_samples": 1000, "test_samples": 1000, "local": {"epochs": 5},
    "prototypes": [{"architecture": "cnn-digits"}],
}  # fmt: skip
DIGITS: dict[str, dict[str, Any]] = {
    name: {**_TWENTY, "data": "digits", **told}
    for name, told in dict[str, dict[str, Any]](
        {
            "digits, alpha 0.05": {"alpha": 0.05},
            "digits, alpha 0.1": {"alpha": 0.1},
            "digits, 10 clients, alpha 0.1": {"alpha": 0.1, "clients": 10},
            "digits, alpha 0.3": {"alpha": 0.3},
            "digits, alpha 1": {"alpha": 1.0},
            "digits, rotated clients, IID": {"partition": "iid", "client_transform": "rotate"},
            "digits, rotated clients, alpha 0.3": {"alpha": 0.3, "client_transform": "rotate"},
            "digits, inverted clients, IID": {"partition": "iid", "client_transform": "invert"},
            "digits, skewed server, alpha 0.1": {"alpha": 0.1, "server_skew": 0.2},
            "digits, inverted server, alpha 0.1": {"alpha": 0.1, "server_transform": "invert"},
            "digits, 4 false discriminators, alpha 0.3": {"alpha": 0.3, "liars": 4, "lie": "discriminator"},
            "digits, 4 sign flippers, alpha 0.3": {"alpha": 0.3, "liars": 4, "lie": "sign-flip"},
            "digits, 4 label shifters, alpha 0.3": {"alpha": 0.3, "liars": 4, "lie": "label-shift"},
        }
    ).items()
}
"""Twenty clients, four a round; `experiments.stacked` runs these too."""
SETTINGS = DIGITS | {
    "AG News as vectors, alpha 0.05": _TEXT | {"alpha": 0.05},
    "AG News as vectors, alpha 0.3": _TEXT | {"alpha": 0.3},
    "MNIST, alpha 0.05": _MNIST | {"alpha": 0.05},
    "MNIST, alpha 0.3": _MNIST | {"alpha": 0.3},
    "MNIST, alpha 1": _MNIST | {"alpha": 1.0},
    "MNIST, 100 clients, alpha 0.05": _HUNDRED | {"alpha": 0.05},
    "MNIST, 100 clients, alpha 0.3": _HUNDRED | {"alpha": 0.3},
    "CIFAR-10, alpha 0.05": _CIFAR | {"alpha": 0.05},
    "CIFAR-10, alpha 0.3": _CIFAR | {"alpha": 0.3},
    "CIFAR-10, server CIFAR-100, alpha 0.05": _CIFAR | {"alpha": 0.05, "server_data": "cifar100"},
}

Found = dict[str, dict[str, list[list[float]]]]
"""Setting -> arm -> accuracy in [0, 1] after each round, seed by seed."""


def vectors(data_dir: Path, target: Path, size: int = 64) -> Path:
    """Write AG News as a file of one's own, and return it: TF-IDF of words, its first singular directions, scaled.

    Args:
        data_dir: folder of packed sets.
        target: the file.
        size: directions.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    with gzip.open(data_dir / "agnews" / "train-10k.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    words = TfidfVectorizer(max_features=5000, sublinear_tf=True).fit_transform(str(row["text"]) for row in rows)
    values = TruncatedSVD(size, random_state=0).fit_transform(words)
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez(target, x=values.astype(np.float32), y=np.array([int(row["label"]) for row in rows]))
    return target


def measure(name: str, arms: Sequence[str], seeds: Sequence[int], out: Path, data_dir: Path) -> dict[str, Any]:
    """Run a setting and return the accuracy after each round by arm and seed; what is done in `out` is read."""
    told, home = dict(SETTINGS[name]), out / experiment.folder_name(name)
    if str(told["data"]).endswith(".npz"):
        target = out / told["data"]
        told["data"] = str(target if target.exists() else vectors(data_dir, target))
    told |= {"recipes": [{**ARMS[arm], "label": arm} for arm in arms], "data_dir": str(data_dir)}
    wanted = Experiment.model_validate({**told, "seed_list": list(seeds)})
    found: dict[str, list[list[float]]] = {}

    def begin(entry: Any, seed: int) -> None:
        print(f"{name}: {entry.title}, seed {seed}", file=sys.stderr, flush=True)
        if entry.title in ALIKE:
            _give(home / f"seed-{seed}", entry.title, [arm for arm in arms if arm in ALIKE])

    for done in experiment.run(wanted, experiment.load(wanted), home, on_run=begin):
        found.setdefault(done.entry.title, []).append(done.history.accuracies)
    return found


def _give(folder: Path, arm: str, arms: Sequence[str]) -> None:
    """Give an arm what comes before the rounds of another one of the same seed."""
    here, others = folder / experiment.folder_name(arm), (folder / experiment.folder_name(each) for each in arms)
    made = next((each for each in others if (each / BEFORE[-1] / "result.json").exists()), None)
    if made is not None and not here.exists():
        for each in BEFORE:
            shutil.copytree(made / each, here / each)


def table(found: Found) -> list[str]:
    """Return the rows of a Markdown table: Reflux, and how much it is ahead of each other arm, in points."""
    others = [arm for arm in ARMS if arm != REFLUX and any(arm in arms for arms in found.values())]
    rows = ["| setting | Reflux | " + " | ".join(f"minus {arm}" for arm in others) + " |"]
    rows.append("|" + " --- |" * (len(others) + 2))
    for name, arms in found.items():
        cells = [_told(differences(arms, arm)) for arm in others]
        rows.append(f"| {name} | {100 * fmean(map(fmean, arms[REFLUX])):.1f} % | " + " | ".join(cells) + " |")
    return rows


def differences(arms: Mapping[str, list[list[float]]], other: str) -> list[float]:
    """Return Reflux minus another arm, mean over the rounds, in points, seed by seed; nothing where it was not run."""
    return [100 * (fmean(one) - fmean(two)) for one, two in zip(arms[REFLUX], arms.get(other, []), strict=False)]


def _told(values: Sequence[float]) -> str:
    """Return a mean with its deviation; in bold where all seeds are on one side, and it is a point at least."""
    if not values:
        return "–"
    clear = abs(fmean(values)) >= 1 and len({value > 0 for value in values}) == 1
    text = f"{fmean(values):+.1f}{spread(values)}"
    return f"**{text}**" if clear else text


def draw(path: Path, found: Found, others: Sequence[str] = (PLAIN, PLAIN + AND, AVG)) -> None:
    """Draw Reflux minus other arms by setting: a dot a seed, a stroke for the mean."""
    figure, axis = plt.subplots(figsize=(7.5, 0.42 * len(found) + 1.4), layout="constrained")
    for row, arms in enumerate(found.values()):
        for place, (other, colour) in enumerate(zip(others, plots.LINE_COLOURS[1:], strict=False)):
            values, height = differences(arms, other), row + 0.24 * (place - (len(others) - 1) / 2)
            axis.scatter(values, [height] * len(values), s=12, color=colour, alpha=0.6, linewidths=0)
            if values:
                mean = fmean(values)
                axis.plot([mean, mean], [height - 0.11, height + 0.11], color=colour, linewidth=2.5)
    axis.axvline(0, color="#333333", linewidth=0.8)
    axis.set_yticks(range(len(found)), list(found), fontsize=8)
    axis.invert_yaxis()
    axis.set(xlabel="points by which Reflux is ahead, mean over the rounds")
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    strokes = [Line2D([], [], color=colour, linewidth=2.5) for colour in plots.LINE_COLOURS[1 : len(others) + 1]]
    names = [f"minus {other}" for other in others]
    figure.legend(strokes, names, frameon=False, fontsize=8, loc="outside upper center", ncols=len(others))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("carry"))
    parser.add_argument("--data-dir", type=Path, default=Path(), help="folder of the sets that are not made here")
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(MAIN), metavar="ARM")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--plot", type=Path)
    told = parser.parse_args()
    found = {name: measure(name, told.arms, told.seeds, told.out, told.data_dir) for name in told.only}
    print("\n".join(table(found)))
    if told.plot is not None:
        draw(told.plot, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
