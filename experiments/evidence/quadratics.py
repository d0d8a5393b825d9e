"""SCAFFOLD on quadratics with different minima, where FedAvg stops beside the minimum of their sum."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contract.local import LocalPlan, ScaffoldObjective, Sgd
from contract.nn.codec import save_state
from contract.recipes import presets
from contract.recipes.parts import SENT_CONTROL
from contract.tensors import TensorFile
from contract.updates import CONTROL, extras
from experiments.evidence import plots
from experiments.evidence.harness import Bench, task_of
from experiments.evidence.verdicts import Section, Setting, Verdict, exactly
from worker.specs import NetworkRef, PrototypeSpec

Array = NDArray[Any]
CLIENTS, ASKED, SIZE, ROUNDS, STEPS = 6, 3, 5, 60, 10
SGD = Sgd(lr=0.2)
TASK = task_of(2, 2 * SIZE)
PLANS = {
    "fedavg": LocalPlan(optimizer=SGD, epochs=STEPS, batch_size=1),
    "scaffold": LocalPlan(objective=ScaffoldObjective(option=2), optimizer=SGD, epochs=STEPS, batch_size=1),
}
REACHED, MISSED = 1e-3, 0.05
TEXT = f"""\
Six clients, each with a quadratic q_i(w) = sum_j a_ij (w_j - m_ij)² / 2 of its own, a between 0.2 and 2, m between -3
and 3, w of {SIZE}; {STEPS} local steps of SGD 0.2 a round, {ROUNDS} rounds. The network's logits are such that its
cross-entropy is q_i, so the devices' own training does the steps. Distance to the minimum of the sum, as a share of the
distance at the start; once with all clients in every round, once with three of them.
"""


class Quadratic(nn.Module):
    """Logits whose cross-entropy with label 0 is a quadratic of the weights.

    A sample is (a, m) [2 d]. With q = sum a (w - m)^2 / 2 + 1, which is positive, logits are (-ln(e^q - 1), 0): their
    cross-entropy is ln(1 + e^q - 1) = q.
    """

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(SIZE))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, 2] for x [B, 2 d]."""
        a, m = x.chunk(2, dim=1)
        q = (a * (self.w - m) ** 2).sum(1) / 2 + 1
        logit = -(q + torch.log1p(-torch.exp(-q)))
        return torch.stack([logit, torch.zeros_like(logit)], dim=1)


@dataclass
class Descent:
    """What one federation did.

    Attributes:
        distances: to the minimum, as a share of the first, from before the first round on.
        gap: largest difference between c and the mean of all c_i after any round.
    """

    distances: list[float] = field(default_factory=list)
    gap: float = 0.0


def weights_of(path: Path) -> Array:
    """Return the tensor w of a file, as float64."""
    with TensorFile(path) as file:
        return np.asarray(file.read("w"), np.float64)


def descend(folder: Path, seed: int, method: str, asked: int) -> Descent:
    """Run one federation with `asked` clients a round."""
    bench, rng = Bench(folder, TASK, seed), np.random.default_rng([7, seed])
    a, m = rng.uniform(0.2, 2, (CLIENTS, SIZE)), rng.uniform(-3, 3, (CLIENTS, SIZE))
    minimum = (a * m).sum(0) / a.sum(0)
    samples = [bench.samples(np.concatenate([a[i], m[i]])[None], np.zeros(1)) for i in range(CLIENTS)]
    model, state, made = folder / "first.safetensors", dict[str, Path](), Descent([1.0])
    save_state(Quadratic(), model)
    memories: dict[int, Mapping[str, Tensor]] = {}
    plan = PLANS[method]
    for index in range(1, ROUNDS + 1):
        prototype = PrototypeSpec(name="main", network=NetworkRef(architecture="custom", weights=model))
        updates = []
        for i in sorted(rng.permutation(CLIENTS)[:asked]):
            update, result = bench.train_module(
                f"client-{i}", prototype, Quadratic(), samples[i], plan,
                index=index, extras=extras(state, "main"), memory=memories.get(i),
            )  # fmt: skip
            updates.append(update)
            memories[i] = result.memory
        done = bench.fuse(
            presets.build(method), [prototype], updates,
            state=state, local=plan, clients_total=CLIENTS, round_index=index, rounds_total=ROUNDS,
        )  # fmt: skip
        model, state = done.models["main"], done.state or state
        made.distances.append(float(np.linalg.norm(weights_of(model) - minimum) / np.linalg.norm(minimum)))
        if method == "scaffold":
            made.gap = max(made.gap, _gap(state[SENT_CONTROL.named("main")], memories))
    return made


def _gap(control: Path, memories: Mapping[int, Mapping[str, Tensor]]) -> float:
    """Return how far c is from the mean of all clients' c_i; those that never took part have zeros."""
    total = sum((memory[CONTROL + "w"].double().numpy() for memory in memories.values()), np.zeros(SIZE))
    return float(np.abs(weights_of(control) - total / CLIENTS).max())


def run(setting: Setting) -> Section:
    """SCAFFOLD and FedAvg, with all clients and with half of them."""
    found: dict[tuple[str, int], list[Descent]] = {}
    for seed in setting.seeds:
        for method in PLANS:
            for asked in (CLIENTS, ASKED):
                setting.progress(f"{method} on quadratics, seed {seed}, {asked} of {CLIENTS} clients")
                with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
                    found.setdefault((method, asked), []).append(descend(Path(folder), seed, method, asked))
    rounds = range(ROUNDS + 1)
    names = {"fedavg": "FedAvg", "scaffold": "SCAFFOLD"}
    curves = {
        f"{names[method]}, {asked} of {CLIENTS}": (rounds, np.mean([each.distances for each in made], axis=0).tolist())
        for (method, asked), made in found.items()
    }
    picture = plots.lines(
        setting.images / "evidence-scaffold.png", "quadratics with different minima, mean over seeds", curves,
        ("round", "distance to the minimum, start = 1"), log="y",
    )  # fmt: skip
    return Section(TEXT, judge(found), {"distance to the minimum by round": picture})


def judge(found: Mapping[tuple[str, int], list[Descent]]) -> list[Verdict]:
    """Return the verdicts, each over all seeds: the worst one counts."""
    verdicts = []
    for asked in (CLIENTS, ASKED):
        who = "all clients" if asked == CLIENTS else f"{asked} of {CLIENTS} clients"
        far = max(each.distances[-1] for each in found["scaffold", asked])
        verdicts.append(
            exactly(f"SCAFFOLD, {who}: distance left, worst seed", f"≤ {REACHED:g}", f"{far:.1e}", far <= REACHED, "0")
        )
        near = min(each.distances[-1] for each in found["fedavg", asked])
        verdicts.append(
            exactly(f"FedAvg, {who}: distance left, best seed", f"≥ {MISSED:g}", f"{near:.3f}", near >= MISSED, "not 0")
        )
        gap = max(each.gap for each in found["scaffold", asked])
        verdicts.append(
            exactly(f"c minus the mean of all c_i, {who}, after any round", "≤ 1e-5", f"{gap:.0e}", gap <= 1e-5, "0")
        )
    return verdicts
