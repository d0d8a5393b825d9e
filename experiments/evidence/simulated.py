"""Server data of another domain, and discriminators that lie (FedGO, appendix F): `potstill simulate` on the digits."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from experiments.evidence import plots
from experiments.evidence.plots import Array
from experiments.evidence.verdicts import Section, Setting, Verdict, ahead, level
from potstill.demo import data
from potstill.simulate import domain, experiment
from potstill.simulate.settings import Experiment

COMMON: dict[str, Any] = {"data": "digits", "clients": 10, "clients_per_round": 4, "rounds": 5, "alpha": 0.1}
FEDAVG: dict[str, Any] = {"name": "fedavg", "label": "FedAvg"}
FEDDF: dict[str, Any] = {"name": "feddf", "label": "FedDF"}
ODDS: dict[str, Any] = {"name": "fedgo-small", "label": "FedGO plain odds", "options": {"link": "sigmoid"}}
CAPPED: dict[str, Any] = {"name": "fedgo-small", "label": "FedGO double sigmoid", "options": {"link": "double_sigmoid"}}
EDGE = data.SHAPE[1]

Means = dict[str, list[float]]
"""What was compared -> mean accuracy over the rounds, in [0, 1], seed by seed."""

SETTING = """\
D1's devices ({clients} of them, {asked} a round, Dirichlet(0.1)), networks and lengths, {rounds} rounds, through
`potstill simulate` ([simulation](simulate.md)). Figures are test accuracies, means over the rounds."""


def run(setting: Setting, what: str, recipes: Sequence[Mapping[str, Any]], **more: Any) -> Means:
    """Return what a comparison showed, by the recipes' labels; seeds are consecutive."""
    seeds = {"seeds": len(setting.seeds), "first_seed": setting.seeds[0]}
    wanted = Experiment.model_validate({**COMMON, **seeds, "recipes": list(recipes), **more})
    found: Means = {}
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        for done in experiment.run(
            wanted,
            experiment.load(wanted),
            Path(folder),
            on_run=lambda entry, seed: setting.progress(f"{what}, {entry.title}, seed {seed}"),
        ):
            found.setdefault(done.entry.title, []).append(fmean(done.history.accuracies))
    return found


def _setting() -> str:
    return SETTING.format(clients=COMMON["clients"], asked=COMMON["clients_per_round"], rounds=COMMON["rounds"])


# ------------------------------------------------------------------------------------------- data of another domain
DOMAINS = OWN, ROTATED, INVERTED, PHOTOS = "own", "rotated", "inverted", "photographs"
DOMAIN_TEXT = """\
{setting}

The server's 719 unlabelled images are the digits' own, or the same ones rotated by a quarter turn or inverted, or as
many 8 x 8 patches of scikit-learn's two photographs, in grey. The generator learns on them, discriminators tell a
device's digits from what it makes, and students learn on them; test images are digits as they are.

{found}
"""
DOMAIN_FOUND = """\
FedDF is worth on rotated digits and on photographs what it is on the devices' own: teachers that all count alike need
no likeness. FedGO's lead needs it: a generator that makes what no device has is told from any device's data, so that
the odds no longer say whose class an image is of. That FedGO stays ahead with server data of another domain does not
show here. Inverted digits harm every student, whose BatchNorm then has statistics of images that are nearly white."""


def photographs() -> Array:
    """Return grey patches [N, 1, 8, 8] in [0, 1] of scikit-learn's photographs, side by side, in reading order."""
    from sklearn.datasets import load_sample_images

    found = []
    for picture in load_sample_images().images:
        grey = picture.astype(np.float32).mean(2) / np.float32(255)
        rows, columns = (size // EDGE for size in grey.shape)
        cut = grey[: rows * EDGE, : columns * EDGE].reshape(rows, EDGE, columns, EDGE)
        found.append(cut.transpose(0, 2, 1, 3).reshape(-1, 1, EDGE, EDGE))
    return np.concatenate(found)


def other_domains(setting: Setting) -> Section:
    """FedDF and FedGO with server data that look otherwise than the devices'."""
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        path = Path(folder, "photographs.npz")
        np.savez(path, x=photographs())
        told: dict[str, dict[str, Any]] = {
            OWN: {},
            ROTATED: {"server_transform": "rotate"},
            INVERTED: {"server_transform": "invert"},
            PHOTOS: {"server_data": str(path)},
        }
        found = {name: run(setting, name, [FEDDF, ODDS], **more) for name, more in told.items()}
    found[OWN] |= run(setting, OWN, [FEDAVG])
    pictures = {"server images by domain": _examples(setting), "accuracy by the server's domain": _bars(setting, found)}
    text = DOMAIN_TEXT.format(setting=_setting(), found=DOMAIN_FOUND)
    return Section(text, judge_domains(found), pictures)


def _examples(setting: Setting) -> str:
    digits = data.load().take(list(range(10)))
    rows = {OWN: digits.inputs, ROTATED: domain.changed(digits, "rotate").inputs}
    rows |= {INVERTED: domain.changed(digits, "invert").inputs, PHOTOS: photographs()[1000:6000:500]}
    return plots.images(setting.images / "evidence-domain-images.png", rows)


def _bars(setting: Setting, found: Mapping[str, Means]) -> str:
    names = {"FedDF": "FedDF", "FedGO plain odds": "FedGO"}
    values = {
        f"{short} {where}": [100 * each for each in found[where][label]]
        for where in found
        for label, short in names.items()
    }
    title = "digits, mean of the rounds, by what the server's images are"
    return plots.bars(setting.images / "evidence-domain.png", title, values, "test accuracy (%)", 100)


def judge_domains(found: Mapping[str, Means]) -> list[Verdict]:
    """Return the verdicts on the domains."""
    feddf = {where: means["FedDF"] for where, means in found.items()}
    odds = {where: means["FedGO plain odds"] for where, means in found.items()}
    return [
        ahead("FedGO plain odds minus FedDF, own", 10, odds[OWN], feddf[OWN], "–"),
        ahead("FedDF: rotated minus own", -4, feddf[ROTATED], feddf[OWN], "–"),
        ahead("FedDF: photographs minus own", -4, feddf[PHOTOS], feddf[OWN], "–"),
        ahead("FedGO plain odds: own minus rotated", 10, odds[OWN], odds[ROTATED], "–"),
        ahead("FedGO plain odds: own minus photographs", 10, odds[OWN], odds[PHOTOS], "–"),
        *(
            ahead(f"FedGO plain odds minus FedDF, {where}", None, odds[where], feddf[where], "–")
            for where in (ROTATED, PHOTOS, INVERTED)
        ),
        level("FedAvg, which has no server data", None, found[OWN]["FedAvg"], "–"),
        *(level(f"FedDF, {where}", None, feddf[where], "–") for where in feddf),
        *(level(f"FedGO plain odds, {where}", None, odds[where], "–") for where in odds),
    ]


# ------------------------------------------------------------------------------------------------------- who lies
LIARS = (0, 2, 5)
LIARS_TEXT = """\
{setting}

A liar's discriminator says 1 to everything, and its model is honest; of ten devices none, two or five lie, drawn by
the seed. The paper has 5 and 10 of 20: 72.35 % without, 69.75 % and 66.38 % with them. With the double sigmoid one
device's odds are at most e times another's, whatever it says; plain odds have no such bound but that of the clipped
discriminator, so that a liar takes nearly all the weight of every image.
"""


def lying_discriminators(setting: Setting) -> Section:
    """FedGO with devices whose discriminators claim every image."""
    found: dict[int, Means] = {}
    for count in LIARS:
        more = {"liars": count, "lie": "discriminator"} if count else {}
        found[count] = run(setting, f"{count} liars", [ODDS, CAPPED], **more)
    found[0] |= run(setting, "nobody lies", [FEDDF])
    values = {
        f"{short} {count} lie": [100 * each for each in found[count][label]]
        for label, short in (("FedGO plain odds", "plain"), ("FedGO double sigmoid", "double"))
        for count in LIARS
    } | {"FedDF 0 lie": [100 * each for each in found[0]["FedDF"]]}
    title = "digits, mean of the rounds, by how many of ten discriminators lie"
    picture = plots.bars(setting.images / "evidence-liars.png", title, values, "test accuracy (%)", 100)
    return Section(LIARS_TEXT.format(setting=_setting()), judge_liars(found), {"accuracy by liars": picture})


def judge_liars(found: Mapping[int, Means]) -> list[Verdict]:
    """Return the verdicts on the liars."""
    odds = {count: means["FedGO plain odds"] for count, means in found.items()}
    capped = {count: means["FedGO double sigmoid"] for count, means in found.items()}
    return [
        ahead("double sigmoid: two liars minus none", -5, capped[2], capped[0], "-2.6 (paper, 5 of 20)"),
        ahead("double sigmoid: five liars minus none", -12, capped[5], capped[0], "-6.0 (paper, 10 of 20)"),
        ahead("plain odds: none minus two liars", 8, odds[0], odds[2], "–"),
        ahead("five liars: double sigmoid minus plain odds", 8, capped[5], odds[5], "–"),
        ahead("two liars: double sigmoid minus FedDF", None, capped[2], found[0]["FedDF"], "–"),
        ahead("five liars: double sigmoid minus FedDF", None, capped[5], found[0]["FedDF"], "–"),
        *(level(f"double sigmoid, {count} liars", None, capped[count], "–") for count in LIARS),
        *(level(f"plain odds, {count} liars", None, odds[count], "–") for count in LIARS),
        level("FedDF, which reads no discriminators", None, found[0]["FedDF"], "–"),
    ]
