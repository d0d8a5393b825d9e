"""What `train_and_push` trains, its heartbeats and its bar included, against loops written by hand."""

import copy
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from client_sdk import data as device_data
from client_sdk.discriminator import generated, train_discriminator
from client_sdk.heartbeat import Heartbeats
from client_sdk.progress import Progress
from client_sdk.training import train_local
from contract.local import DiscriminatorPlan, LocalPlan, Sgd
from contract.nn.registry import initialise
from experiments.bench import training
from experiments.bench.measuring import Bench, Figure, timed

LIMIT = 1.05
"""The most that our loops may take of what loops by hand do."""
RATE, BATCH, SEED = 0.01, 32, 7


def orders(samples: int, epochs: int, batch: int) -> list[list[Tensor]]:
    """Return the batches of each epoch that a device's seed gives."""
    draw, found = torch.Generator().manual_seed(SEED), []
    for _ in range(epochs):
        found.append(list(torch.split(torch.randperm(samples, generator=draw), batch)))
    return found


def samples_of(inputs: Tensor, labels: Tensor) -> device_data.Samples:
    """Return a device's data, checked."""
    samples = device_data.load((inputs, labels))
    samples.check(training.IMAGES)
    return samples


def _compared(
    bench: Bench,
    what: str,
    ours: Callable[[], None],
    plain: Callable[[], None],
    modules: Mapping[str, nn.Module],
    times: int,
) -> Figure:
    """Return what both took in turns, after seeing that both left the same weights in `modules`."""
    for first_time in (plain, ours):  # what libraries do once is no part of a round
        first_time()
    pairs = bench.turns(what, timed(ours), timed(plain), times)
    training.check_same(modules["ours"], modules["plain"], what)
    return Figure(what, "s", "a loop by hand", pairs, LIMIT)


def measure_training(
    bench: Bench, architecture: str, inputs: Tensor, labels: Tensor, device: str, epochs: int, times: int
) -> Figure:
    """Return what a round's local training takes; the weights are compared."""
    plan = LocalPlan(optimizer=Sgd(lr=RATE), epochs=epochs, batch_size=BATCH)
    samples, place = samples_of(inputs, labels), torch.device(device)
    closes = datetime.now(UTC) + timedelta(days=1)
    round_ = SimpleNamespace(id="bench", heartbeat_seconds=None, deadline_at=closes)
    assignment: Any = SimpleNamespace(round=round_, local=plan)
    first = initialise(architecture, {}, training.IMAGES, 0).to(place)
    modules: dict[str, nn.Module] = {}
    held = inputs.to(place), labels.to(place)

    def ours() -> None:
        modules["ours"] = copy.deepcopy(first)
        beats = Heartbeats(SimpleNamespace(), assignment, samples)  # type: ignore[arg-type]  # none is sent
        with Progress(False).bar("bench", epochs) as told:
            hooks: dict[str, Any] = {"on_epoch": beats.between(told), "on_step": beats.step, "on_pass": beats.passing}
            train_local(modules["ours"], samples, plan, seed=SEED, device=place, **hooks)

    def plain() -> None:
        modules["plain"] = copy.deepcopy(first)
        order = [rows.to(place) for epoch in orders(len(samples), epochs, BATCH) for rows in epoch]
        training.train(modules["plain"], *held, order, RATE)

    what = f"local training, {epochs} epochs of {len(samples):,} images, {architecture}"
    return _compared(bench, what, ours, plain, modules, times)


def measure_discriminator(
    bench: Bench, architecture: str, inputs: Tensor, labels: Tensor, device: str, times: int
) -> Figure:
    """Return what a discriminator's training takes; the weights are compared."""
    plan = DiscriminatorPlan(architecture=architecture, epochs=2, flip=False)
    samples, place = samples_of(inputs, labels), torch.device(device)
    first = initialise(plan.architecture, plan.options, training.IMAGES, 0)
    generator, modules = initialise("gen-dcgan", {}, training.IMAGES, 1).to(place), dict[str, nn.Module]()
    latent, held = int(generator.latent), inputs.to(place)  # type: ignore[arg-type]

    def ours() -> None:
        modules["ours"] = copy.deepcopy(first).to(place)
        fakes = generated(generator, latent, SEED, place)
        given: dict[str, Any] = {"link": "double_sigmoid", "input_range": (0.0, 1.0), "seed": SEED, "device": place}
        train_discriminator(modules["ours"], samples, fakes, plan, **given)

    def plain() -> None:
        modules["plain"] = copy.deepcopy(first).to(place)
        noise = torch.Generator().manual_seed(SEED)
        order = [rows.to(place) for epoch in orders(len(samples), plan.epochs, plan.batch_size) for rows in epoch]
        draw = lambda count: torch.randn(count, latent, generator=noise).to(place)  # noqa: E731
        training.discriminate(modules["plain"], generator, held, order, draw, plan.optimizer.lr)

    what = f"discriminator, {plan.epochs} epochs of {len(samples):,} images, {architecture}"
    return _compared(bench, what, ours, plain, modules, times)


def measure(bench: Bench) -> Iterator[Figure]:
    """ResNet-8, images of 32 x 32; the discriminator is FedGO's."""
    inputs, labels = training.images(bench.pick(1000, 256), 3)
    times = bench.pick(5, 2)
    yield measure_training(bench, "resnet-8", inputs, labels, "cpu", 2, times)
    yield measure_discriminator(bench, "disc-cnn-4", inputs, labels, "cpu", times)
