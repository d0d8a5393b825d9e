"""FedSDD: what distillation costs, whom it changes, and groups that run ahead of it (App. A.6)."""

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from contract.grouping import split
from contract.groups import copies
from contract.local import LocalPlan, Sgd
from contract.recipes import presets
from contract.recipes.recipe import Recipe
from experiments.evidence import plots
from experiments.evidence.arms import draw
from experiments.evidence.harness import Bench, task_of, with_weights
from experiments.evidence.verdicts import Section, Setting, Verdict, exactly
from worker.specs import Datasets, JobResult, NetworkRef, PrototypeSpec, UpdateSpec

TASK = task_of(3, 2)
NETWORK = NetworkRef(architecture="mlp", options={"hidden": [64, 64]})
GROUPS, SERVER = 4, 512
LOCAL = LocalPlan(optimizer=Sgd(lr=0.1), epochs=2, batch_size=20)
SIZES = (8, 14, 20)
LOCAL_SECONDS, DISTIL_SECONDS = 3.0, 5.0
"""Durations of A.6's clock: one client's training, one distillation."""
TEXT = f"""\
K = {GROUPS} models of one MLP on the Swiss roll, U = {SERVER} unlabelled points, 8, 14 and 20 clients, three rounds,
R = 1 and 2. A teacher forward is one point through one teacher, as the job counts them; labels are made once a round.
For A.6 the groups other than the main one train their next round while the main model is distilled. The service does
so by itself ([ADR 12](adr/0012-groups-run-ahead.md)); `tests/e2e/test_overlap.py` compares its models, with real
devices, in order and with the overlap and a worker killed in between: bit for bit the same. Here, without service and
devices, the groups train in another thread; the makespan is that of a clock on which clients train one at a time,
{LOCAL_SECONDS:g} s each, and the server distils for {DISTIL_SECONDS:g} s beside them.
"""


def fedsdd(rounds: int) -> Recipe:
    """Return FedSDD's recipe with teachers of that many rounds."""
    schedule = {"optimizer": {"kind": "sgd", "lr": 0.1}, "batch_size": 256, "steps": 40}
    groups = {"kind": "random", "count": GROUPS}
    return presets.build("fedsdd", {"groups": groups, "members": {"rounds": rounds}, "schedule": schedule})


FEDDF = presets.build("feddf", {"schedule": {"batch_size": 256, "steps": 40, "early_stop": None}})
FUSE_ONLY = fedsdd(1).model_copy(update={"distil": None})


@dataclass
class Run:
    """A federation on its way.

    Attributes:
        models: each model's newest file, the main one first.
        state: the method's, from round to round.
        results: a job's result a round.
    """

    bench: Bench
    clients: int
    datasets: Datasets
    prototypes: list[PrototypeSpec]
    state: dict[str, Path] = field(default_factory=dict)
    results: list[JobResult] = field(default_factory=list)

    @classmethod
    def begin(cls, folder: Path, seed: int, clients: int, models: Sequence[str]) -> "Run":
        """Return a federation before its first round."""
        bench, rng = Bench(folder, TASK, seed), np.random.default_rng([5, seed])
        datasets = Datasets(unlabeled=bench.dataset("server", draw(SERVER, rng)[0]))
        recipe = FUSE_ONLY if len(models) > 1 else FEDDF
        prototypes = bench.begin(*(PrototypeSpec(name=name, network=NETWORK) for name in models), recipe=recipe)
        return cls(bench, clients, datasets, prototypes)

    def groups(self, index: int) -> list[list[str]]:
        """Return who trains which model in a round."""
        names = [f"client-{number:02}" for number in range(self.clients)]
        return split(names, len(self.prototypes), seed=self.bench.seed, round_index=index)

    def train(self, index: int, numbers: Sequence[int]) -> list[UpdateSpec]:
        """Train the clients of some models in a round, from the models as they are now."""
        made = []
        for number in numbers:
            for client in self.groups(index)[number]:
                rng = np.random.default_rng([6, self.bench.seed, int(client[-2:])])
                samples = self.bench.samples(*draw(60, rng))
                made.append(self.bench.train(client, self.prototypes[number], samples, LOCAL, index=index))
        return made

    def fuse(self, recipe: Recipe, updates: Sequence[UpdateSpec], index: int) -> JobResult:
        """Fuse a round's updates with the models as they are now."""
        return self.bench.fuse(
            recipe, self.prototypes, updates,
            datasets=self.datasets, state=self.state, round_index=index, rounds_total=3,
        )  # fmt: skip

    def accept(self, result: JobResult) -> None:
        """Take a round's models and state."""
        self.results.append(result)
        self.state = result.state if result.state is not None else self.state
        self.take(result.models)

    def take(self, models: dict[str, Path]) -> None:
        """Go on from these models."""
        self.prototypes = [
            with_weights(each, models[each.name]) if each.name in models else each for each in self.prototypes
        ]


def sequential(run: Run, recipe: Recipe, rounds: int = 3) -> Run:
    """Run rounds one after another."""
    for index in range(1, rounds + 1):
        updates = run.train(index, range(len(run.prototypes)))
        run.accept(run.fuse(recipe, updates, index))
    return run


def overlapped(run: Run, recipe: Recipe, rounds: int = 3) -> Run:
    """Run rounds with every group but the main one a round ahead of the distillation (A.6).

    The averages of those groups are all that their next round needs, and distillation does not change them.
    """
    others = range(1, len(run.prototypes))
    waiting = run.train(1, others)
    with ThreadPoolExecutor(1) as threads:
        for index in range(1, rounds + 1):
            updates = [*run.train(index, [0]), *waiting]
            averages = run.fuse(FUSE_ONLY, updates, index).models
            job = threads.submit(run.fuse, recipe, updates, index)
            if index < rounds:
                ahead = Run(run.bench, run.clients, run.datasets, run.prototypes)
                ahead.take(averages)
                waiting = ahead.train(index + 1, others)
            run.accept(job.result())
    return run


def makespan(run: Run, rounds: int, overlap: bool) -> float:
    """Return when the last distillation ends on A.6's clock: clients train one at a time, the server beside them."""
    trained = distilled = 0.0
    for index in range(1, rounds + 1):
        main, *others = (LOCAL_SECONDS * len(group) for group in run.groups(index))
        if overlap:
            trained = max(trained + sum(others), distilled) + main
        else:
            trained = distilled + main + sum(others)
        distilled = trained + DISTIL_SECONDS
    return distilled


# ----------------------------------------------------------------------------------------------------------- experiment
def run(setting: Setting) -> Section:
    """FedSDD's counts, who is changed, and the overlap."""
    found = Found()
    for seed in setting.seeds:
        for clients in SIZES:
            setting.progress(f"FedSDD, seed {seed}, {clients} clients")
            with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
                measure(Path(folder), seed, clients, found)
    x = list(SIZES)
    curves = {
        name: (x, [float(found.forwards[key, m][-1]) for m in SIZES])
        for name, key in (("FedDF", "feddf"), ("FedSDD, R = 1", "R = 1"), ("FedSDD, R = 2", "R = 2"))
    }
    picture = plots.lines(
        setting.images / "evidence-fedsdd.png",
        "cost of distillation",
        curves,
        ("clients in a round", "teacher forwards"),
    )
    return Section(TEXT, judge(found), {"teacher forwards by clients": picture})


@dataclass
class Found:
    """What was measured: ('feddf' or 'R = …', clients) -> teacher forwards by round, and whether the rest held."""

    forwards: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    only_main: list[bool] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)


def measure(folder: Path, seed: int, clients: int, found: Found) -> None:
    """Run one federation by each method and add what was seen."""
    models = copies("main", GROUPS)
    kinds: dict[str, tuple[Sequence[str], Recipe]] = {"feddf": (["main"], FEDDF)}
    kinds |= {f"R = {count}": (models, fedsdd(count)) for count in (1, 2)}
    for key, (names, recipe) in kinds.items():
        done = sequential(Run.begin(folder / key, seed, clients, names), recipe)
        found.forwards[key, clients] = [result.metrics["teacher_forwards"] for result in done.results]
    found.only_main.append(_only_main_changes(Run.begin(folder / "main", seed, clients, models)))
    one = sequential(Run.begin(folder / "one", seed, clients, models), fedsdd(2))
    other = overlapped(Run.begin(folder / "other", seed, clients, models), fedsdd(2))
    found.same.append(all(_bytes(a) == _bytes(b) for a, b in zip(one.results, other.results, strict=True)))
    found.spans.append((makespan(one, 3, False), makespan(one, 3, True)))


def _only_main_changes(run: Run) -> bool:
    """Return whether distillation changes the main model, and leaves the other groups' averages as they are."""
    updates = run.train(1, range(GROUPS))
    averages, distilled = _bytes(run.fuse(FUSE_ONLY, updates, 1)), _bytes(run.fuse(fedsdd(1), updates, 1))
    changed = [name for name in averages if averages[name] != distilled[name]]
    return averages.keys() == distilled.keys() and changed == ["main"]


def _bytes(result: JobResult) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in sorted(result.models.items())}


def judge(found: Found) -> list[Verdict]:
    """Return the verdicts."""
    return [
        *_counts(found),
        exactly(
            "distillation changes model 0 alone", "always", f"{sum(found.only_main)} of {len(found.only_main)}",
            all(found.only_main),
        ),
        exactly(
            "A.6: every model of three rounds, overlapped against in order", "bit for bit",
            f"{sum(found.same)} of {len(found.same)}", all(found.same),
        ),
        exactly(
            "A.6: makespan, overlapped against in order", "shorter",
            ", ".join(f"{short:g} s against {long:g} s" for long, short in sorted(set(found.spans))),
            all(short < long for long, short in found.spans),
        ),
    ]  # fmt: skip


def _counts(found: Found) -> list[Verdict]:
    expected: dict[str, tuple[str, Callable[[int, int], int]]] = {
        "R = 1": ("K · R_avail · U", lambda index, clients: GROUPS * SERVER),
        "R = 2": ("K · R_avail · U", lambda index, clients: GROUPS * min(index, 2) * SERVER),
        "feddf": ("m · U", lambda index, clients: clients * SERVER),
    }
    verdicts = []
    for key, (bar, wanted) in expected.items():
        held = all(found.forwards[key, m] == [wanted(index, m) for index in (1, 2, 3)] for m in SIZES)
        seen = "; ".join(f"m = {m}: {', '.join(map(str, found.forwards[key, m]))}" for m in SIZES)
        name = "FedDF" if key == "feddf" else f"FedSDD, {key}"
        verdicts.append(exactly(f"{name}: teacher forwards by round", bar, seen, held))
    for key, name, wanted_ratio, seen in (("R = 1", "FedSDD", 1.0, "0.96"), ("feddf", "FedDF", 2.5, "2.23")):
        ratio = found.forwards[key, SIZES[-1]][-1] / found.forwards[key, SIZES[0]][-1]
        what = f"{name}: cost with {SIZES[-1]} clients over {SIZES[0]}"
        bar = f"{wanted_ratio:g}"
        verdicts.append(exactly(what, bar, f"{ratio:g}", ratio == wanted_ratio, f"{seen} (seconds)"))
    return verdicts
