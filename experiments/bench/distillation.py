"""Distillation on the CPU: ours against a plain loop; teachers label and the student learns, each by itself."""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from contract.recipes import presets
from contract.recipes.recipe import Distillation
from experiments.bench import training
from experiments.bench.measuring import Bench, Figure, timed
from worker.pipeline.data import Augmenter
from worker.pipeline.distil import DistillationTask, teach
from worker.pipeline.labels import Labeller
from worker.pipeline.targets import Targets
from worker.pipeline.teachers import Members, Teacher
from worker.specs import NetworkRef

RATE, STUDENT_BATCH = 1e-3, 64


def recipe(epochs: int) -> Distillation:
    """Return FedDF's distillation: mean logits, KL, Adam."""
    schedule = {"optimizer": {"kind": "adam", "lr": RATE}, "batch_size": STUDENT_BATCH, "epochs": epochs}
    plain = {"steps": None, "lr": "constant", "clip_norm": None, "early_stop": None}
    made = presets.build("feddf", {"schedule": {**schedule, **plain}}).distil
    assert made is not None
    return made


def label(distil: Distillation, architecture: str, teachers: Sequence[Path], inputs: Tensor, device: str) -> Targets:
    """Label as a worker does."""
    found = [
        Teacher(path.stem, NetworkRef(architecture=architecture, weights=path), 1 + number)
        for number, path in enumerate(teachers)
    ]
    labeller = Labeller(distil.weigh, distil.combine, training.IMAGES, device, teachers[0].parent)
    members = Members(len(found), iter(found))
    return labeller.label(members, {"unlabeled": inputs}, lambda _: None)["unlabeled"].targets


def order_of(samples: int, epochs: int, seed: int) -> list[Tensor]:
    """Return the batches that the worker's seed gives."""
    draw, found = torch.Generator().manual_seed(seed), []
    for _ in range(epochs):
        found += list(torch.split(torch.randperm(samples, generator=draw), STUDENT_BATCH))
    return [rows for rows in found if len(rows) > 1]


def measure_labels(
    bench: Bench, architecture: str, teachers: Sequence[Path], inputs: Tensor, device: str, times: int
) -> Figure:
    """Return what labelling takes; the labels are compared."""
    distil, what = recipe(1), f"{len(teachers)} teachers label {len(inputs):,} images, {architecture}"
    found: dict[str, Tensor] = {}

    def ours() -> None:
        found["ours"] = label(distil, architecture, teachers, inputs, device).logits

    def plain() -> None:
        found["plain"] = training.label(architecture, teachers, inputs, device)

    pairs = bench.turns(what, timed(ours), timed(plain), times)
    probs = {side: torch.softmax(logits.float(), dim=1) for side, logits in found.items()}
    if not torch.allclose(probs["ours"], probs["plain"], rtol=1e-3, atol=1e-4):
        raise RuntimeError(f"{what}: ours and the plain loop give different labels")
    return Figure(what, "s", "a plain PyTorch loop", pairs)


def measure_student(
    bench: Bench, architecture: str, start: Path, inputs: Tensor, logits: Tensor, device: str, epochs: int, times: int
) -> Figure:
    """Return what the student's training takes; the weights are compared."""
    what = f"student learns {epochs} passes over {len(inputs):,} images, {architecture}"
    inputs, targets = inputs.to(device), Targets(logits).to(device)
    first = training.network(architecture, start, device)
    augment = Augmenter(recipe(epochs).data.augment, training.IMAGES, 0)
    task = DistillationTask(inputs, targets, recipe(epochs), 5, 1, 1, augment)
    order = [rows.to(device) for rows in order_of(len(inputs), epochs, 5)]
    students = {}

    def ours() -> None:
        students["ours"] = copy.deepcopy(first)
        teach(students["ours"], task, lambda _: None)

    def plain() -> None:
        students["plain"] = copy.deepcopy(first)
        training.teach(students["plain"], inputs, targets.logits, order, RATE)

    pairs = bench.turns(what, timed(ours), timed(plain), times)
    training.check_same(students["ours"], students["plain"], what)
    return Figure(what, "s", "a plain PyTorch loop", pairs)


def measure(bench: Bench) -> Iterator[Figure]:
    """ResNet-8 and images of 32 x 32."""
    inputs, _ = training.images(bench.pick(2000, 256), 0)
    times = bench.pick(3, 2)
    paths = training.write_networks("resnet-8", bench.folder, 20)
    label(recipe(1), "resnet-8", paths[:1], inputs[:256], "cpu")  # what is made once is there
    for teachers in (8, 20):
        yield measure_labels(bench, "resnet-8", paths[:teachers], inputs, "cpu", times)
    logits = training.label("resnet-8", paths[:8], inputs, "cpu")
    yield measure_student(bench, "resnet-8", paths[0], inputs, logits, "cpu", 1, times)
