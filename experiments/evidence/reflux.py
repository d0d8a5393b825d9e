"""Reflux beside FedGO with plain odds on D1's digits, and without one of its parts at a time: `potstill simulate`."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from contract.recipes import parts
from contract.tensors import TensorFile
from experiments.evidence import plots
from experiments.evidence.plots import Array
from experiments.evidence.verdicts import Section, Setting, Verdict, ahead, level
from potstill.demo.data import CLASSES
from potstill.demo.methods import SCHEDULE
from potstill.simulate import experiment
from potstill.simulate.history import History
from potstill.simulate.settings import Experiment
from worker.parts.weigh import log_entropy_weight, log_odds, normalise

COMMON: dict[str, Any] = {"data": "digits", "clients": 10, "clients_per_round": 4, "rounds": 10}
ALPHAS = (0.1, 0.05)
TAU = 0.3
_CONFIDENCE = {"kind": "entropy", "tau": TAU}
_BALANCED = {"kind": "balanced_odds"}
_ODDS = {"kind": "odds", "link": "sigmoid"}


def _arm(label: str, name: str, local: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return {"name": name, "label": label, "options": {"schedule": SCHEDULE, **options}, "local": dict(local or {})}


ODDS, REFLUX, SERVER, ALONE = "FedGO plain odds", "Reflux", "Reflux, server alone", "without discriminators"
LOSS, ANCHOR = "FedGO plain odds and the client loss", "Reflux, anchor"
CONFIDENCE, BALANCE, BANK = "without confidence", "without balancing", "without the bank"
ARMS = {
    ODDS: _arm(ODDS, "fedgo-small", link="sigmoid"),
    REFLUX: _arm(REFLUX, "reflux"),
    ALONE: _arm(ALONE, "reflux", weigh=_CONFIDENCE, discriminators=None),
    SERVER: _arm(SERVER, "reflux-server"),
    LOSS: _arm(LOSS, "fedgo-small", {"objective": {"kind": "prior_adjusted_ce"}}, link="sigmoid"),
    CONFIDENCE: _arm(CONFIDENCE, "reflux", weigh=_BALANCED),
    BALANCE: _arm(BALANCE, "reflux", weigh={"kind": "product", "factors": [_ODDS, _CONFIDENCE]}),
    BANK: _arm(BANK, "reflux", members={"kind": "clients"}),
    ANCHOR: _arm(ANCHOR, "reflux-anchor"),
}
FEWER = (ODDS, REFLUX)
"""What is run at the second alpha."""
BEFORE = ("generator", "discriminators", "score")
"""Folders of a simulation with what comes before its rounds: the same bytes for all of a seed's."""

Curves = dict[str, list[list[float]]]
"""What was run -> accuracy in [0, 1] after each round, seed by seed."""
TEXT = """\
D1's data, devices, networks and lengths ({clients} devices, {asked} a round, {rounds} rounds), through `potstill
simulate` ([simulation](simulate.md)). Figures are test accuracies, means over the rounds. [Reflux](reflux.md) is ours:
the reference is another implementation of it, which chose its parts among 66 variants on these seeds. "Without" is
Reflux with one part left out; without the client loss it is the server alone.
"""


def folder_of(out: Path, seed: int, label: str) -> Path:
    """Return the folder of one run."""
    return out / f"seed-{seed}" / experiment.folder_name(label)


def measure(setting: Setting, labels: Sequence[str], alpha: float, out: Path) -> dict[str, list[History]]:
    """Return the histories of a comparison by label; seeds are consecutive, and what is done in `out` is read."""
    wanted, found = _experiment(setting, labels, alpha), dict[str, list[History]]()

    def begin(entry: Any, seed: int) -> None:
        setting.progress(f"alpha {alpha}, {entry.title}, seed {seed}")
        here = folder_of(out, seed, entry.title)
        for label in labels:
            there = folder_of(out, seed, label)
            if label != ALONE and (there / BEFORE[-1] / "result.json").exists() and not here.exists():
                for each in BEFORE:
                    shutil.copytree(there / each, here / each)

    for done in experiment.run(wanted, experiment.load(wanted), out, on_run=begin):
        found.setdefault(done.entry.title, []).append(done.history)
    return found


def _experiment(setting: Setting, labels: Sequence[str], alpha: float) -> Experiment:
    seeds = {"seeds": len(setting.seeds), "first_seed": setting.seeds[0]}
    recipes = [ARMS[label] for label in labels]
    return Experiment.model_validate({**COMMON, **seeds, "alpha": alpha, "recipes": recipes})


def run(setting: Setting) -> Section:
    """The recipe, its ablation, and who is trusted where."""
    curves, trusted = dict[float, Curves](), None
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        for alpha, labels in zip(ALPHAS, (tuple(ARMS), FEWER), strict=True):
            histories = measure(setting, labels, alpha, Path(folder, str(alpha)))
            curves[alpha] = {label: [each.accuracies for each in runs] for label, runs in histories.items()}
            if alpha == ALPHAS[0]:
                trusted = draw_trust(setting, histories[REFLUX][0])
    return section(setting, curves, trusted)


def section(setting: Setting, curves: Mapping[float, Curves], trusted: str | None = None) -> Section:
    """Return the page's section of what was measured."""
    first = curves[ALPHAS[0]]
    rounds = range(1, len(first[REFLUX][0]) + 1)
    means = {label: (rounds, (100 * np.mean(first[label], axis=0)).tolist()) for label in (ODDS, SERVER, REFLUX, ALONE)}
    title = "digits, ten devices, Dirichlet(0.1), mean over seeds"
    lines = plots.lines(setting.images / "evidence-reflux.png", title, means, ("round", "test accuracy (%)"))
    pictures = {"accuracy per round": lines} | ({} if trusted is None else {"who is trusted where": trusted})
    text = TEXT.format(clients=COMMON["clients"], asked=COMMON["clients_per_round"], rounds=COMMON["rounds"])
    return Section(text, judge(curves), pictures)


def judge(curves: Mapping[float, Curves]) -> list[Verdict]:
    """Return the verdicts."""
    first, second = (
        {label: [fmean(each) for each in runs] for label, runs in curves[alpha].items()} for alpha in ALPHAS
    )
    last = [fmean(each[-3:]) for each in curves[ALPHAS[0]][REFLUX]]
    without = {ALONE: "5.6", SERVER: "2.2", CONFIDENCE: "1.5", BALANCE: "1.2", BANK: "1.1"}
    bars = {ALONE: 2.0}
    return [
        ahead("Reflux minus FedGO plain odds", 5, first[REFLUX], first[ODDS], "+9.2 ± 1.7, 5 of 5"),
        ahead("the same at alpha 0.05", 5, second[REFLUX], second[ODDS], "+10.2 ± 2.9, 5 of 5"),
        level("Reflux, last three rounds", 91, last, "–"),
        ahead("Reflux, server alone, minus FedGO plain odds", 2.5, first[SERVER], first[ODDS], "–"),
        *(
            ahead(f"Reflux minus {label}" if label != SERVER else "Reflux minus the server alone", bars.get(label),
                  first[REFLUX], first[label], f"+{seen}")
            for label, seen in without.items()
        ),
        ahead(f"Reflux minus {LOSS}", None, first[REFLUX], first[LOSS], "+3.9"),
        ahead("Reflux, anchor, minus Reflux", None, first[ANCHOR], first[REFLUX], "–"),
        *(level(f"{label}, all rounds", None, first[label], "–") for label in (ODDS, REFLUX)),
        *(level(f"{label}, all rounds, alpha 0.05", None, second[label], "–") for label in FEWER),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------- who is trusted where
def draw_trust(setting: Setting, history: History) -> str:
    """Draw each device's share of each class, and its mean weight on server images of it by odds and by Reflux.

    Args:
        setting: of the experiment.
        history: of Reflux with the first seed and alpha.
    """
    wanted = _experiment(setting, FEWER, ALPHAS[0])
    dealt = experiment.deal(wanted, experiment.load(wanted), setting.seeds[0])
    counts = dealt.holdings.astype(np.float64)
    labels, sizes = dealt.server.labels, counts.sum(axis=1)
    plain, claims, confidence = _logs(history, sizes)
    panels = {
        "whose images there are": counts / np.maximum(counts.sum(axis=0), 1),
        "weights by plain odds": by_class(normalise(list(plain)), labels),
        "weights by Reflux": by_class(normalise(list(claims + confidence)), labels),
    }
    return plots.shares(setting.images / "evidence-reflux-trust.png", panels, ("class", "device"))


def _logs(history: History, sizes: Array) -> tuple[Array, Array, Array]:
    """Return log weights [N, S] on the server set, by plain odds, by balanced ones, and by confidence."""
    names, state = sorted(history.scores), history.rounds[-1].state
    plain, sure = [], []
    for name, size in zip(names, sizes, strict=True):
        with TensorFile(history.scores[name]) as file:
            plain.append(np.log(size) + log_odds(file.read("unlabeled"), "sigmoid"))
        said = state.get(parts.BANK.named(name))
        if said is None:  # it never was in a round
            sure.append(np.full(plain[-1].shape, -np.inf))
            continue
        with TensorFile(said) as file:
            sure.append(log_entropy_weight(file.read("unlabeled").astype(np.float64), TAU))
    with TensorFile(state[parts.CLAIMS.named()]) as file:
        assert json.loads(file.header.metadata["clients"]) == names
        claims = file.read("unlabeled")
    return np.stack(plain), claims, np.stack(sure)


def by_class(weights: Array, labels: Array) -> Array:
    """Return the mean [N, C] of weights [N, S] over the images of each class."""
    return np.stack([weights[:, labels == each].mean(axis=1) for each in range(CLASSES)], axis=1)
