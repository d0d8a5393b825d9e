"""ResNet-18 on images of 32 x 32, on one GPU: ours against plain loops in the same run, and against the chip.

    python -m experiments.bench.gpu                       # ten minutes on one H100
    python -m experiments.bench.gpu --device cpu --tiny   # the same code, small, anywhere

Local training, labelling with eight teachers, distillation, and a whole FedGO round (training of eight clients,
labels weighed by discriminators' scores, distillation). What the chip gives is measured, not looked up: a large matrix
product (operations a second) and a large copy (bytes a second), in float32 as networks are trained. A part's share is
its operations, forward and backward, over those that the product would do in the same time; its least bytes are those
of weights and inputs that it reads once a batch, over those that the copy would move.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contract.local import DiscriminatorPlan, LocalPlan, Sgd
from contract.recipes import presets
from experiments.bench import device as devices
from experiments.bench import distillation, machine, training
from experiments.bench.measuring import Bench, Figure, timed
from experiments.bench.table import shown
from experiments.evidence.harness import Bench as Federation
from experiments.evidence.harness import fakes_from
from potstill.console import out, print_table
from worker.parts.flops import effort_of, forward_flops, training_flops
from worker.specs import Datasets, NetworkRef, PrototypeSpec


@dataclass(frozen=True)
class Size:
    """How large it is: images of a device and of the server, epochs of both, clients of a round, repetitions."""

    architecture: str = "resnet-18"
    discriminator: str = "disc-cnn-4"
    images: int = 10_000
    server: int = 10_000
    epochs: int = 2
    clients: int = 8
    times: int = 5
    product: int = 8192


TINY = Size("convnet", "disc-cnn-mlp", images=16, server=8, epochs=1, clients=2, times=1, product=64)


# ------------------------------------------------------------------------------------------------------------- the chip
@dataclass(frozen=True)
class Chip:
    """What it gives: float operations a second of a matrix product, bytes a second of a copy (read and written)."""

    flops: float
    bytes: float


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def _best(work: Any, device: str, times: int = 5) -> float:
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        _wait(device)
        found.append(time.perf_counter() - begun)
    return min(found)


def chip_of(device: str, edge: int) -> Chip:
    """Measure the chip: a product of two matrices of that edge, and a copy of 64 of them."""
    a, b = torch.randn(edge, edge, device=device), torch.randn(edge, edge, device=device)
    product = _best(lambda: a @ b, device)
    large = torch.empty(min(64, max(1, 2**31 // a.numel())) * a.numel(), device=device)
    copy = torch.empty_like(large)
    copied = _best(lambda: copy.copy_(large), device)
    return Chip(2 * edge**3 / product, 2 * large.numel() * large.element_size() / copied)


# ------------------------------------------------------------------------------------------------------------ the parts
@dataclass(frozen=True)
class Part:
    """A figure, and what one repetition takes of the chip at least: operations, None where they cannot be counted, and
    bytes.
    """

    figure: Figure
    flops: int | None
    bytes: float


def _least_bytes(name: str, batches: float, images: int, passes: int) -> float:
    """Return the bytes of weights, read or written so many times a batch, and of images, read once."""
    effort = effort_of(name, {}, training.IMAGES)
    weights = 0 if effort is None else 4 * effort.parameters
    return batches * passes * weights + 4.0 * images * 3 * 32 * 32


_LEARNING = 6
"""Times that a step moves the weights at least: forward, backward, the gradient written and read, the step's two."""


def parts(bench: Bench, size: Size, device: str) -> Iterator[Part]:
    """Yield local training, labelling, distillation and the round."""
    inputs, labels = training.images(size.images, 0)
    task, name, count = training.IMAGES, size.architecture, size.epochs * size.images
    figure = devices.measure_training(bench, name, inputs, labels, device, size.epochs, size.times)
    moved = _least_bytes(name, count / devices.BATCH, count, _LEARNING)
    yield Part(figure, training_flops(name, {}, task, count, None), moved)
    server, _ = training.images(size.server, 1)
    teachers = training.write_networks(name, bench.folder, size.clients)
    figure = distillation.measure_labels(bench, name, teachers, server, device, size.times)
    seen = len(server) * len(teachers)
    yield Part(figure, forward_flops(name, {}, task, seen), _least_bytes(name, seen / training.BATCH, seen, 1))
    logits, count = training.label(name, teachers, server, device), size.epochs * size.server
    figure = distillation.measure_student(bench, name, teachers[0], server, logits, device, size.epochs, size.times)
    moved = _least_bytes(name, count / distillation.STUDENT_BATCH, count, _LEARNING)
    yield Part(figure, training_flops(name, {}, task, count, None), moved)
    yield fedgo_round(bench, size, device)


def fedgo_round(bench: Bench, size: Size, device: str) -> Part:
    """Measure a round: clients train, the ensemble labels by the odds of their discriminators, the student learns.

    The plain side trains the same clients, labels and student by its own loops, with equal weights in place of the
    odds: it reads and writes no file but the teachers', checks nothing and weighs nothing.
    """
    name, shards = (
        size.architecture,
        [training.images(size.images // size.clients, 10 + n) for n in range(size.clients)],
    )
    federation = Federation(bench.folder / "round", training.IMAGES, 0, device)
    server, _ = training.images(size.server, 1)
    datasets = Datasets(unlabeled=federation.dataset("server", server.numpy()))
    prototype = federation.begin(PrototypeSpec(name="main", network=NetworkRef(architecture=name)))[0]
    samples = [federation.samples(inputs.numpy(), labels.numpy()) for inputs, labels in shards]
    scores = _scores(federation, size, samples, datasets, server)
    plan = LocalPlan(optimizer=Sgd(lr=devices.RATE), epochs=size.epochs, batch_size=devices.BATCH)
    schedule = {"optimizer": {"kind": "adam", "lr": distillation.RATE}, "batch_size": distillation.STUDENT_BATCH}
    more = {"epochs": size.epochs, "steps": None, "lr": "constant", "clip_norm": None, "early_stop": None}
    recipe = presets.build("fedgo-small", {"schedule": schedule | more})

    def ours() -> None:
        updates = [federation.train(f"c{n}", prototype, each, plan) for n, each in enumerate(samples)]
        federation.fuse(recipe, [prototype], updates, scores=scores, datasets=datasets)
        _wait(device)

    assert prototype.network.weights is not None
    start = prototype.network.weights

    def plain() -> None:
        _plain_round(name, start, shards, server, size, device, bench.folder)
        _wait(device)

    what = (
        f"FedGO round of {size.clients} clients, {size.images:,} images in all, {size.server:,} of the server, {name}"
    )
    pairs = bench.turns(what, timed(ours), timed(plain), max(1, size.times // 2))
    trained, learnt = size.epochs * size.clients * (size.images // size.clients), size.epochs * size.server
    seen = size.server * size.clients
    learning = training_flops(name, {}, training.IMAGES, trained + learnt, None)
    labelling = forward_flops(name, {}, training.IMAGES, seen)
    steps = trained / devices.BATCH + learnt / distillation.STUDENT_BATCH
    moved = _least_bytes(name, steps, trained + learnt, _LEARNING) + _least_bytes(name, seen / training.BATCH, seen, 1)
    flops = None if learning is None or labelling is None else learning + labelling
    return Part(Figure(what, "s", "plain loops", pairs), flops, moved)


def _scores(
    federation: Federation, size: Size, samples: Sequence[Any], datasets: Datasets, server: Tensor
) -> dict[str, Path]:
    """Train the clients' discriminators, which is done once before the rounds, and score the server's set."""
    plan = DiscriminatorPlan(architecture=size.discriminator, epochs=1, flip=True)
    fakes = fakes_from(server.numpy(), 0, (0.0, 1.0))
    trained = {
        f"c{number}": federation.discriminator(f"c{number}", each, fakes, plan, "double_sigmoid", (0.0, 1.0))
        for number, each in enumerate(samples)
    }
    return federation.score(trained, plan, datasets, (0.0, 1.0))


def _plain_round(
    name: str,
    start: Path,
    shards: Sequence[tuple[Tensor, Tensor]],
    server: Tensor,
    size: Size,
    device: str,
    folder: Path,
) -> None:
    from contract.nn.codec import save_state

    paths = []
    for number, (inputs, labels) in enumerate(shards):
        module = training.network(name, start, device)
        order = [rows.to(device) for epoch in devices.orders(len(inputs), size.epochs, devices.BATCH) for rows in epoch]
        training.train(module, inputs.to(device), labels.to(device), order, devices.RATE)
        paths.append(folder / f"plain-{number}.safetensors")
        save_state(module, paths[-1])
    logits = training.label(name, paths, server, device)
    student = training.network(name, paths[0], device)
    order = [rows.to(device) for rows in distillation.order_of(len(server), size.epochs, 0)]
    training.teach(student, server.to(device), logits.to(device), order, distillation.RATE)


# -------------------------------------------------------------------------------------------------------------- command
def run(device: str, size: Size) -> dict[str, Any]:
    """Measure everything; return the document that `--output` writes, as `make bench` does."""
    chip = chip_of(device, size.product)
    said = machine.description() | {"device": torch.cuda.get_device_name() if device.startswith("cuda") else device}
    made: dict[str, Any] = {"machine": said, "quick": size == TINY, "parts": {}}
    begun, figures = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="potstill-bench-") as folder:
        for part in parts(Bench(False, Path(folder)), size, device):
            document = part.figure.document()
            used = None if part.flops is None else part.flops / document["ours"] / chip.flops
            moved = part.bytes / document["ours"] / chip.bytes
            figures.append(document | {"flops": part.flops, "of_flops": used, "bytes": part.bytes, "of_bytes": moved})
    made["chip"] = {"flops_per_second": chip.flops, "bytes_per_second": chip.bytes}
    made["parts"]["gpu"] = {"seconds": round(time.monotonic() - begun, 1), "figures": figures}
    return made


def _shares(found: dict[str, Any]) -> Iterator[list[str]]:
    for each in found["parts"]["gpu"]["figures"]:
        used = "–" if each["of_flops"] is None else f"{each['of_flops']:.1%}"
        yield [each["what"], f"{each['flops'] or 0:.3g}", used, f"{each['bytes']:.3g}", f"{each['of_bytes']:.1%}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="so small that it says nothing of speed")
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    given = parser.parse_args(arguments)
    found = run(given.device, TINY if given.tiny else Size())
    beyond = shown(found)
    print_table(("what", "operations", "of the chip's", "bytes at least", "of the chip's"), _shares(found))
    flops, moved = found["chip"]["flops_per_second"] / 1e12, found["chip"]["bytes_per_second"] / 1e9
    out().print(f"the chip: {flops:.2f} TFLOP/s in a product, {moved:.0f} GB/s in a copy")
    if given.output:
        given.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return int(bool(beyond))


if __name__ == "__main__":
    sys.exit(main())
