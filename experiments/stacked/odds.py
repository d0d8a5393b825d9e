"""What comes before the rounds: a generator of the server's images, and every client's discriminator (FedGO)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from experiments.stacked.network import Adam, Turns, Weights, begin, forward, patches, stack, take
from potstill.simulate.experiment import Dealt

LATENT, EDGE = 32, 8
Layers = list[Tensor]
"""Weights [M, a, b] and biases [M, 1, b] in turn."""


def _linear(sizes: Sequence[int], random: torch.Generator) -> Layers:
    found = []
    for before, after in zip(sizes[:-1], sizes[1:], strict=True):
        for rows in (before, 1):
            found.append((torch.rand(1, rows, after, generator=random) * 2 - 1) * before**-0.5)
    return [each.requires_grad_() for each in found]


def _mlp(layers: Layers, values: Tensor) -> Tensor:
    for place in range(0, len(layers), 2):
        values = torch.baddbmm(layers[place + 1], torch.relu(values) if place else values, layers[place])
    return values


def generator(images: Tensor, seed: int, steps: int = 300) -> Layers:
    """Return a generator by WGAN-GP, as `wgan_gp` trains it by default.

    Args:
        images: of the server, [S, 64] in [-1, 1].
        seed: of weights, noise and order.
        steps: of the generator; five of the critic's before each.
    """
    random, real = torch.Generator().manual_seed(4242 + seed), images[None]
    made, critic = _linear((LATENT, 128, 128, EDGE**2), random), _linear((EDGE**2, 128, 128, 1), random)
    adams = [torch.optim.Adam(each, lr=2e-4, betas=(0.0, 0.9), foreach=True) for each in (made, critic)]

    def draw() -> Tensor:
        return torch.tanh(_mlp(made, torch.randn(1, 64, LATENT, generator=random)))

    def step(loss: Tensor, layers: Layers, adam: torch.optim.Optimizer) -> None:
        adam.zero_grad()
        loss.backward(inputs=layers)  # type: ignore[no-untyped-call]
        adam.step()

    for _ in range(steps):
        for _ in range(5):
            seen = real[:, torch.randint(len(images), (64,), generator=random)]
            fake = draw().detach()
            share = torch.rand(1, 64, 1, generator=random)
            mixed = (share * seen + (1 - share) * fake).requires_grad_()
            one, two, three = torch.split(_mlp(critic, torch.cat([seen, fake, mixed], 1)), 64, 1)
            (slope,) = torch.autograd.grad(three.sum(), mixed, create_graph=True)
            penalty = 10 * (slope.norm(dim=2) - 1).square().mean()
            step(two.mean() - one.mean() + penalty, critic, adams[1])
        step(-_mlp(critic, draw()).mean(), made, adams[0])
    return [each.detach() for each in made]


def _discriminators(clients: int, seed: int, random: torch.Generator) -> Weights:
    """Return networks without BatchNorm and with one score each."""
    drawn = stack([begin(1000 * seed + client + 12345) for client in range(clients)])
    body = {name: drawn[name] for name in ("w1", "b1", "w2", "b2")}
    last = ((torch.rand(clients, rows, 1, generator=random) * 2 - 1) / math.sqrt(128) for rows in (128, 1))
    return body | dict(zip(("w3", "b3"), last, strict=True))


def scores(dealt: Dealt, made: Layers, seed: int, capped: bool = False, epochs: int = 30, batch: int = 32) -> Tensor:
    """Return every client's scores a [N, S] of the server's images, by discriminators like `disc-cnn-digits`.

    Args:
        dealt: the data.
        made: the generator.
        seed: of weights, noise and order.
        capped: D = sigmoid(sigmoid(a)), as the paper trains it; else of one sigmoid.
        epochs: of each discriminator; Adam, 0.001 (0.5, 0.999).
        batch: real images a step, and as many of the generator's.
    """
    random = torch.Generator().manual_seed(99 + seed)
    names = sorted(dealt.clients)
    images = [patches(torch.as_tensor(dealt.clients[name].inputs) * 2 - 1) for name in names]
    turns = Turns([len(each) for each in images], epochs, batch, [random] * len(names))
    trained = take(_discriminators(len(names), seed, random), torch.tensor(turns.order))
    adam = Adam(trained, betas=(0.5, 0.999))
    for step in range(turns.steps):
        rows = turns.rows(step)
        real, mask = turns.padded(rows, images)
        noise = torch.randn(1, mask.numel(), LATENT, generator=random)
        fakes = patches(torch.tanh(_mlp(made, noise)).view(-1, 1, EDGE, EDGE)).view(real.shape)
        leaves: Weights = {name: value[: len(rows)].detach().requires_grad_() for name, value in trained.items()}
        found = forward(leaves, torch.cat([real, fakes], 1), None)[..., 0]
        found = torch.sigmoid(found) if capped else found
        ours, theirs = torch.split(found, real.shape[1], 1)
        losses = functional.softplus(-ours) + functional.softplus(theirs)
        gradients = torch.autograd.grad(((losses * mask).sum(1) / mask.sum(1)).sum(), list(leaves.values()))
        with torch.no_grad():
            adam.step(trained, gradients)
    server = patches(torch.as_tensor(dealt.server.inputs) * 2 - 1)
    with torch.no_grad():
        return forward(turns.back(trained), server[None].expand(len(names), -1, -1, -1), None)[..., 0].double()
