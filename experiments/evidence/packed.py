"""Real data sets from a folder of one's own, each a small comparison by `potstill.simulate`; reported, not judged."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.evidence.verdicts import Section, Setting, Verdict, ahead, level
from potstill.simulate import datasets, experiment, report
from potstill.simulate.config import SimulationError
from potstill.simulate.experiment import Run
from potstill.simulate.settings import Experiment

LABELS = {"fedavg": "FedAvg", "feddf": "FedDF", "fedgo-small": "FedGO plain odds"}


@dataclass(frozen=True)
class Comparison:
    """One data set's comparison.

    Attributes:
        what: the data set, as people call it.
        networks: in words.
        plan: fields of `Experiment` that differ from `COMMON`.
        recipes: keys of `LABELS`; the first is what the others are to beat.
        gan: FedGO's options for its generator and discriminators, where it is compared.
        distil: epochs of distillation.
    """

    what: str
    networks: str
    plan: Mapping[str, Any]
    recipes: Sequence[str]
    gan: Mapping[str, Any]
    distil: int = 5


COMMON: dict[str, Any] = {
    "clients": 10, "clients_per_round": 4, "test_samples": 2000, "local": {"epochs": 5},
}  # fmt: skip
COMPARISONS = {
    "mnist": Comparison(
        "MNIST",
        "`cnn-digits`; FedGO's generator `gen-mlp`, its discriminators `disc-cnn-mlp`",
        {"alpha": 0.1, "rounds": 5, "samples": 4000, "server_samples": 1500},
        ("fedavg", "feddf", "fedgo-small"),
        {"discriminators.plan.epochs": 3, "discriminators.generator.steps": 200},
    ),
    "cifar10": Comparison(
        "CIFAR-10",
        "`resnet-8`; FedGO's generator `gen-dcgan`, its discriminators `disc-cnn-4`",
        {
            "alpha": 0.3,
            "rounds": 4,
            "samples": 3000,
            "server_samples": 1000,
            "test_samples": 1000,
            "local": {"epochs": 4},
        },
        ("fedavg", "feddf", "fedgo-small"),
        {"discriminators.plan.epochs": 3, "discriminators.generator.steps": 50},
        distil=3,
    ),
    "agnews": Comparison(
        "AG News",
        "`lstm` of width 64 on 32 token ids a text, by the tokenizer that both ends share",
        {"alpha": 0.3, "rounds": 6, "samples": 6000, "server_samples": 1500},
        ("fedavg", "feddf"),
        {},
    ),
}
TEXT = """\
{what} from a folder of one's own (`--data-dir` or POTSTILL_DATA_DIR, laid out as in [simulation](simulate.md)); nothing
of it is part of potstill. {samples} training samples on {clients} clients by Dirichlet({alpha:g}), {per_round} a round,
{rounds} rounds; {server} further ones without labels on the server; accuracy on {test} test samples.
Networks: {networks}.
Devices: Adam 1e-3, {epochs} epochs, batch 32. Distillation from the average: {distil} epochs, batch 64.{gan}

Far shorter than a paper's training, and few seeds, as each takes minutes: it shows the whole path at work on real data.
In how many of so few seeds one is ahead decides nothing; figures are reported, not judged.

{found}

Test accuracy in percent, mean over seeds, after each round:

{curves}"""
GAN = "\nFedGO: {steps} generator steps, discriminators of {epochs} epochs, one sigmoid."
SKIPPED = "Not run: {reason}.\n"


def missing(key: str, folder: Path | None) -> str | None:
    """Return why a data set cannot be read, without a word on where was looked; None where its files are there."""
    try:
        datasets.files(key, folder)
    except SimulationError:
        return f"{COMPARISONS[key].what} is not part of potstill; name a folder that has it by --data-dir or " + (
            datasets.ENVIRONMENT
        )
    return None


def plan(key: str, seeds: Sequence[int], folder: Path | None) -> Experiment:
    """Return what `potstill simulate` is told; seeds are consecutive."""
    chosen = COMPARISONS[key]
    distil = {"schedule.epochs": chosen.distil}
    options = {"fedavg": {}, "feddf": distil, "fedgo-small": {**distil, **chosen.gan, "link": "sigmoid"}}
    recipes = [{"name": name, "label": LABELS[name], "options": options[name]} for name in chosen.recipes]
    given = {"data": key, "recipes": recipes, "seeds": len(seeds), "first_seed": seeds[0]}
    return Experiment.model_validate(
        {**COMMON, **chosen.plan, **given, "data_dir": None if folder is None else str(folder)}
    )


def run(key: str, setting: Setting) -> Section:
    """Compare the recipes on one data set.

    Raises:
        SimulationError: the data set is not there.
    """
    chosen, wanted = COMPARISONS[key], plan(key, setting.seeds, setting.data_dir)
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        runs = list(
            experiment.run(
                wanted,
                experiment.load(wanted),
                Path(folder),
                on_run=lambda entry, seed: setting.progress(f"{chosen.what}, {entry.title}, seed {seed}"),
            )
        )
    setting.images.mkdir(parents=True, exist_ok=True)
    picture = setting.images / f"evidence-{key}.png"
    title = f"{chosen.what}, {wanted.clients} clients, Dirichlet({wanted.alpha:g}), {wanted.clients_per_round} a round"
    report.plot_curves(runs, picture, title)
    link = f"{picture.parent.name}/{picture.name}"
    return Section(text(wanted, chosen, runs), judge(runs), {f"accuracy per round on {chosen.what}": link})


def mnist(setting: Setting) -> Section:
    """MNIST."""
    return run("mnist", setting)


def cifar10(setting: Setting) -> Section:
    """CIFAR-10."""
    return run("cifar10", setting)


def agnews(setting: Setting) -> Section:
    """AG News."""
    return run("agnews", setting)


def means(runs: Sequence[Run]) -> dict[str, list[float]]:
    """Return per recipe, seed by seed, the mean accuracy over the rounds."""
    return {
        title: [fmean(each.history.accuracies) for each in group] for title, group in report.by_recipe(runs).items()
    }


def _pairs(titles: Sequence[str]) -> list[tuple[str, str]]:
    """Return which recipe is to be above which: every later one above every earlier one."""
    return [(one, other) for place, one in enumerate(titles) for other in titles[:place]]


def judge(runs: Sequence[Run]) -> list[Verdict]:
    """Return the figures, none of them with a bar."""
    averages, verdicts = means(runs), list[Verdict]()
    for title, group in report.by_recipe(runs).items():
        verdicts.append(level(f"{title}, mean of the rounds", None, averages[title], "–"))
        verdicts.append(level(f"{title}, last round", None, [each.history.accuracies[-1] for each in group], "–"))
        ensembles = [each.history.rounds[-1].ensemble_accuracy for each in group]
        if None not in ensembles:
            known = [found for found in ensembles if found is not None]
            verdicts.append(level(f"{title}, its teachers together, last round", None, known, "–"))
    for one, other in _pairs(list(averages)):
        what = f"{one} minus {other}, mean of the rounds"
        verdicts.append(ahead(what, None, averages[one], averages[other], "–"))
    return verdicts


def text(wanted: Experiment, chosen: Comparison, runs: Sequence[Run]) -> str:
    """Return the setting, what held and what did not, and the accuracies round by round."""
    gan = ""
    if chosen.gan:
        steps, epochs = (chosen.gan[f"discriminators.{name}"] for name in ("generator.steps", "plan.epochs"))
        gan = GAN.format(steps=steps, epochs=epochs)
    return TEXT.format(
        what=chosen.what, samples=wanted.samples, clients=wanted.clients, alpha=wanted.alpha, gan=gan,
        per_round=wanted.clients_per_round, rounds=wanted.rounds, server=wanted.server_samples,
        test=wanted.test_samples, networks=chosen.networks, epochs=wanted.local["epochs"],
        distil=chosen.distil, found=findings(means(runs)), curves=curves(runs),
    )  # fmt: skip


def findings(averages: Mapping[str, Sequence[float]]) -> str:
    """Return which order of the papers held with every seed in the mean of the rounds, and which did not."""
    lines = []
    for one, other in _pairs(list(averages)):
        gaps = [100 * (a - b) for a, b in zip(averages[one], averages[other], strict=True)]
        wins = sum(gap > 0 for gap in gaps)
        verdict = "held with every seed" if wins == len(gaps) else "**did not hold**"
        if len(gaps) == 1:
            verdict = ("ahead" if wins else "**not ahead**") + " with the one seed, which decides nothing"
        seeds = f", in {wins} of {len(gaps)} seeds" if len(gaps) > 1 else ""
        lines.append(f"- {one} above {other}: {verdict} ({fmean(gaps):+.1f} points{seeds}).")
    return "\n".join(lines)


def curves(runs: Sequence[Run]) -> str:
    """Return a table of the accuracies, in Markdown."""
    grouped = {
        title: [fmean(values) for values in zip(*(each.history.accuracies for each in group), strict=True)]
        for title, group in report.by_recipe(runs).items()
    }
    rounds = len(next(iter(grouped.values())))
    lines = [
        "| recipe | " + " | ".join(str(index) for index in range(1, rounds + 1)) + " |",
        "| --- |" + " ---: |" * rounds,
    ]
    lines += [
        f"| {title} | " + " | ".join(f"{100 * value:.1f}" for value in curve) + " |" for title, curve in grouped.items()
    ]
    return "\n".join(lines) + "\n"
