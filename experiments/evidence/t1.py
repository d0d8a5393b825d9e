"""T1's two tables: pseudo-labels and servers against the quadrant rule, and clients that share nothing."""

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.local import Link
from contract.recipes import parts
from contract.tensors import TensorFile
from experiments.evidence import gaussians, plots
from experiments.evidence.gaussians import APART, CLIENTS, EDGE, METHODS, SHARED, World, world
from experiments.evidence.verdicts import OFTEN, Section, Setting, Verdict, ahead, exactly, level
from worker.parts.arrays import Float
from worker.parts.weigh import log_weights, normalise

Array = NDArray[Any]
Runs = dict[str, list[float]]
"""'<method> labels', '<method> server' and 'average' -> a share a seed."""

LABELS = {
    "uniform": "uniform",
    "variance": "variance (logits)",
    "variance-probs": "variance (probabilities)",
    "entropy": "entropy",
    "dafkd": "DaFKD",
    "fedgo-sigmoid": "FedGO plain odds",
    "fedgo-double": "FedGO double sigmoid",
    "true": "true densities",
}
TEXT_SHARED = """\
Four Gaussians of variance 3 at (±4, ±4); red in quadrants 1 and 3, blue in 2, green in 4. Four clients of 270 points
of their own Gaussian and 10 of each other one. 300 server points uniform on [-12, 12]², which are the discriminators'
fakes too. MLP 2-64-64-3, Adam 1e-3: 2 epochs for a classifier, 10 for a discriminator of the same size (one sigmoid),
20 for the student from the average, batch 64. Share of a 120 x 120 grid on which the decision is the quadrant's.
"""
TEXT_APART = """\
The same Gaussians, but no client has a point of another's; 50 epochs each for classifiers and discriminators, 30 for
the student. Accuracy of the server model on 4000 fresh points of the mixture. A client that has seen one class is sure
of it everywhere, so how sure teachers are does not tell which of them knows; the discriminators do.
"""


def measure(made: World, methods: Sequence[str], runs: Runs) -> None:
    """Fuse one seed's round by every method and add what was measured to `runs`."""
    for method in methods:
        metrics = made.fuse(method).metrics
        runs.setdefault(f"{method} labels", []).append(metrics["ensemble"]["accuracy"])
        runs.setdefault(f"{method} server", []).append(metrics["accuracy"])
    runs.setdefault("average", []).append(metrics["average"]["accuracy"])


# -------------------------------------------------------------------------------------------------- a little is shared
def run_shared(setting: Setting) -> Section:
    """T1 as the paper draws it, with a little data shared."""
    points, runs, pictures = gaussians.grid(), Runs(), {}
    for seed in setting.seeds:
        setting.progress(f"T1, seed {seed}")
        with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
            made = world(Path(folder), seed, SHARED, points, gaussians.quadrant_rule(points))
            measure(made, list(METHODS), runs)
            if seed == setting.seeds[0]:
                picture = plots.regions(setting.images / "evidence-t1.png", *_panels(made))
                pictures[f"decision regions, seed {seed}"] = picture
    return Section(TEXT_SHARED, judge_shared(runs), pictures)


def judge_shared(runs: Runs) -> list[Verdict]:
    """Return the verdicts on T1."""
    odds, server = runs["fedgo-sigmoid labels"], runs["fedgo-sigmoid server"]
    verdicts = [
        level("FedGO pseudo-labels", 92, odds, "96.0 ± 1.8"),
        level("pseudo-labels from the true densities", 96.5, runs["true labels"], "98.6 ± 0.7"),
        ahead("true densities minus FedGO", None, runs["true labels"], odds, "+2.6", in_share=OFTEN),
    ]
    for method, least, seen in (("uniform", 8, "+17.8"), ("variance", 7, "+15.9"), ("entropy", 7, "+16.2")):
        what = f"FedGO minus {LABELS[method]}, pseudo-labels"
        verdicts.append(ahead(what, least, odds, runs[f"{method} labels"], seen, in_share=OFTEN))
    return [
        *verdicts,
        level("distilled server, FedGO", 92, server, "96.2"),
        ahead("distilled server, FedGO minus parameter average", 8, server, runs["average"], "+18.9"),
        ahead("FedGO minus DaFKD, pseudo-labels", -0.5, odds, runs["dafkd labels"], "+1.8"),
        ahead("FedGO minus variance (probabilities)", None, odds, runs["variance-probs labels"], "–"),
        level("FedGO double sigmoid, pseudo-labels", None, runs["fedgo-double labels"], "–"),
    ]


def _panels(made: World) -> tuple[dict[str, Array], float, dict[str, tuple[Array, Array]]]:
    """Return what the plot of decision regions shows: rule and data, average, ensembles, FedGO's student."""
    network, points = made.prototype.network, made.test
    fused = made.fuse("fedgo-sigmoid")
    average = made.bench.fuse(gaussians_average(), [made.prototype], made.updates).models["main"]
    panels = {"the rule, and a client's data": gaussians.quadrant_rule(points)}
    panels["parameter average"] = made.bench.predict(network, average, points)
    for method in ("uniform", "variance", "entropy", "dafkd", "fedgo-sigmoid"):
        panels[f"teachers, {LABELS[method]}"] = made.bench.ensemble(made.spec(method), points)
    panels["student, FedGO plain odds"] = made.bench.predict(network, fused.models["main"], points)
    return panels, EDGE, {"the rule, and a client's data": made.data[0]}


def gaussians_average() -> Any:
    """Return the recipe of the plain average."""
    from contract.recipes import presets

    return presets.build("fedavg")


# --------------------------------------------------------------------------------------------------- nothing is shared
def run_apart(setting: Setting) -> Section:
    """T1 without shared data."""
    runs, exact = Runs(), list[float]()
    for seed in setting.seeds:
        setting.progress(f"T1 without shared data, seed {seed}")
        rng = np.random.default_rng([2, seed])
        who = rng.integers(0, 4, 4000)
        test = gaussians.CENTRES[who] + np.sqrt(gaussians.VARIANCE) * rng.standard_normal((4000, 2))
        with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
            made = world(Path(folder), seed, APART, test, gaussians.CLASSES[who])
            measure(made, [method for method in METHODS if method != "variance-probs"], runs)
            exact.append(_largest_share_of_a_liar(made))
    shown = {"parameter average": runs["average"]}
    shown |= {LABELS[key]: runs[f"{key} server"] for key in LABELS if f"{key} server" in runs}
    values = {name: [100 * value for value in each] for name, each in shown.items()}
    picture = plots.bars(
        setting.images / "evidence-t1-apart.png", "server model, no data shared", values, "accuracy (%)", 100
    )
    verdicts = [*judge_apart(runs), *_exact(exact)]
    return Section(TEXT_APART, verdicts, {"accuracy of the server model by weighting": picture})


def judge_apart(runs: Runs) -> list[Verdict]:
    """Return the verdicts on T1 without shared data."""
    double, verdicts = runs["fedgo-double server"], []
    others = {"parameter average": runs["average"]}
    others |= {LABELS[key]: runs[f"{key} server"] for key in ("uniform", "variance", "entropy")}
    for name, values in others.items():
        what = f"FedGO double sigmoid minus {name}, server"
        verdicts.append(ahead(what, 20, double, values, "0.90 against 0.48 to 0.50", in_share=OFTEN))
    return [
        *verdicts,
        level("FedGO plain odds, server", 97, runs["fedgo-sigmoid server"], "99.3"),
        level("FedGO double sigmoid, server", None, double, "90.2 ± 5.3"),
        level("DaFKD with one sigmoid, server", None, runs["dafkd server"], "99.2"),
    ]


def _largest_share_of_a_liar(made: World) -> float:
    """Return the largest weight that one client gets whose discriminator says 'mine' to everything (FedGO F.8)."""
    rows = []
    for client in CLIENTS:
        with TensorFile(made.scores["double_sigmoid"][client]) as file:
            rows.append(file.read("test"))
    scores = np.stack(rows).astype(np.float64)
    scores[0] = 60.0
    return float(_weights([300] * 4, scores, "double_sigmoid")[0].max())


def _weights(counts: Sequence[int], scores: Float, link: Link) -> Float:
    """Return FedGO's weights [m, B] from n_k [m] and scores [m, B]."""
    odds = parts.WeighOdds(link=link)
    return normalise(
        [log_weights(odds, n, np.zeros((len(row), 1)), row) for n, row in zip(counts, scores, strict=True)]
    )


def _exact(liars: Sequence[float]) -> list[Verdict]:
    """Return the verdicts on what holds for every sample: Theorem 3.6, and the bound on a lying discriminator."""
    points = np.random.default_rng(0).uniform(-6, 6, (1000, 2))
    real = gaussians.densities(points, SHARED.shared)
    generated = 1 / (2 * EDGE) ** 2
    counts = [300, 300, 150, 50]
    ours = _weights(counts, real / (real + generated), "prob")
    wanted = np.asarray(counts)[:, None] * real
    gap = float(np.abs(ours - wanted / wanted.sum(0)).max())
    bound = math.e / (math.e + 3)
    return [
        exactly("weights from the true D are n_k p_k / sum (Theorem 3.6)", "≤ 1e-9", f"{gap:.0e}", gap <= 1e-9),
        exactly(
            "largest weight of one lying discriminator of four (double sigmoid)",
            f"≤ e / (e + 3) = {bound:.4f}",
            f"{max(liars):.4f}",
            max(liars) <= bound + 1e-12,
        ),
    ]
