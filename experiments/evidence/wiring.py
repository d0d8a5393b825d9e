"""D1 with weights from the true class counts: what odds could give, and whether the student learns what it is told.

The service never has these labels, so this runs on the pipeline alone.
"""

import tempfile
from pathlib import Path
from statistics import mean

import numpy as np

from contract.local import LocalPlan
from contract.recipes import presets
from contract.tensors import write_file
from contract.wire.plans import RoundsPlan
from experiments.evidence import plots
from experiments.evidence.harness import Bench, task_of, with_weights
from experiments.evidence.verdicts import Section, Setting, Verdict, level, spread
from potstill.demo.data import CLASSES, SHAPE, Split, split
from potstill.demo.methods import LOCAL, SCHEDULE
from potstill.samples import Samples
from service.domain.selection import choose
from worker.specs import Datasets, NetworkRef, PrototypeSpec

CLIENTS, ASKED, ROUNDS = 10, 4, 10
RECIPE = presets.build("fedgo-small", {"link": "sigmoid", "schedule": SCHEDULE})
PLAN = LocalPlan.model_validate(LOCAL)
TEXT = """\
D1's data, networks and schedule, but a client's score of an image is the logarithm of the share of the image's true
class among its own: weights are then proportional to how many images of that class a client has. It shows what exact
odds are worth, and that the student gets from its teachers what they know.
"""


def true_scores(folder: Path, parts: Split) -> dict[str, Path]:
    """Write ln(count of the image's class / n_k) for every client, server set and test set; no image: -30."""
    found = {}
    for number, part in enumerate(parts.clients):
        shares = np.bincount(part.labels, minlength=CLASSES) / len(part)
        logs = np.where(shares > 0, np.log(np.maximum(shares, 1e-30)), -30.0).astype(np.float32)
        path = folder / f"true-{number}.safetensors"
        write_file(path, {"unlabeled": logs[parts.server.labels], "test": logs[parts.test.labels]})
        found[name_of(number)] = path
    return found


def name_of(number: int) -> str:
    """Return a device's name."""
    return f"device-{number:02}"


def federate(folder: Path, seed: int) -> list[tuple[float, float]]:
    """Return (server, teachers) test accuracy of each round."""
    parts, bench = split(seed, CLIENTS), Bench(folder, task_of(CLASSES, *SHAPE), seed)
    model = bench.begin(PrototypeSpec(name="main", network=NetworkRef(architecture="cnn-digits")))[0]
    datasets = Datasets(
        unlabeled=bench.dataset("server", parts.server.inputs),
        test=bench.dataset("test", parts.test.inputs, parts.test.labels),
    )
    scores = true_scores(folder, parts)
    clients: dict[str, Samples] = {name_of(number): each for number, each in enumerate(parts.clients)}
    sizes = {name: len(part) for name, part in clients.items()}
    rounds, seen = RoundsPlan(total=ROUNDS, clients_per_round=ASKED), []
    for index in range(1, ROUNDS + 1):
        updates = [
            bench.train(name, model, bench.samples(clients[name].inputs, clients[name].labels), PLAN, index=index)
            for name in choose(rounds, seed, index, sizes)
        ]
        result = bench.fuse(
            RECIPE, [model], updates, datasets=datasets, scores=scores, round_index=index, rounds_total=ROUNDS
        )
        model = with_weights(model, result.models["main"])
        seen.append((result.metrics["accuracy"], result.metrics["ensemble"]["accuracy"]))
    return seen


def run(setting: Setting) -> Section:
    """The wiring check of D1."""
    runs = []
    for seed in setting.seeds:
        setting.progress(f"D1 with true weights, seed {seed}")
        with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
            runs.append(federate(Path(folder), seed))
    server, teachers = np.mean(runs, axis=0).T * 100
    rounds = range(1, ROUNDS + 1)
    curves = {"teachers": (rounds, teachers.tolist()), "server": (rounds, server.tolist())}
    picture = plots.lines(
        setting.images / "evidence-d1-wiring.png", "digits, weights from true class counts, mean over seeds", curves,
        ("round", "test accuracy (%)"),
    )  # fmt: skip
    return Section(TEXT, judge(runs), {"accuracy per round of server and teachers": picture})


def judge(runs: list[list[tuple[float, float]]]) -> list[Verdict]:
    """Return the verdicts over the last three rounds."""
    last = [mean(server for server, _ in run[-3:]) for run in runs]
    gaps = [100 * mean(server - teacher for server, teacher in run[-3:]) for run in runs]
    gap = mean(gaps)
    return [
        level("server, last three rounds", 92, last, "96.0"),
        Verdict("server minus its teachers, last three", "within 2", f"{gap:+.1f}{spread(gaps)}", "1.2", abs(gap) <= 2),
    ]
