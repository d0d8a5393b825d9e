"""`cnn-digits`, M of them in every tensor, and what trains them: a device's epochs, a server's distillation.

Shapes: M networks, B images of 8x8 as patches [B, 16, 9] (what a 3x3 convolution of stride 2 reads), C classes.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from potstill.demo.data import CLASSES

Weights = dict[str, Tensor]
"""Tensors [M, ...] by name: parameters, or the running statistics of both BatchNorms."""
PLACES = [6 * (2 * i + a) + 2 * j + b for i in range(2) for j in range(2) for a in range(3) for b in range(3)]
"""Of a padded 4x4 map, 6x6, what the second convolution's four places read."""
DECAY = 0.9
"""Of running statistics, PyTorch's default."""


def patches(images: Tensor) -> Tensor:
    """Return [B, 16, 9] of images [B, 1, 8, 8]."""
    padded = functional.pad(images.float(), (1, 1, 1, 1))
    return padded.unfold(2, 3, 2).unfold(3, 3, 2).reshape(len(images), 16, 9)


def begin(seed: int) -> Weights:
    """Return the parameters of one network, without the axis of networks; uniform as PyTorch's layers are."""
    random = torch.Generator().manual_seed(seed)

    def uniform(*shape: int, fan: int) -> Tensor:
        return (torch.rand(shape, generator=random) * 2 - 1) / math.sqrt(fan)

    found: Weights = {}
    for layer, (before, after) in enumerate(((9, 16), (144, 32), (128, CLASSES)), 1):
        found |= {f"w{layer}": uniform(before, after, fan=before), f"b{layer}": uniform(1, after, fan=before)}
        if layer < 3:
            found |= {f"g{layer}": torch.ones(1, after), f"e{layer}": torch.zeros(1, after)}
    return found


def stack(networks: Sequence[Weights]) -> Weights:
    """Return networks as one."""
    return {name: torch.stack([each[name] for each in networks]) for name in networks[0]}


def take(weights: Weights, which: Tensor | slice) -> Weights:
    """Return some of the networks; a slice's are views."""
    return {name: value[which] for name, value in weights.items()}


def statistics(networks: int) -> Weights:
    """Return fresh running statistics."""
    return {f"{kind}{layer}": make(networks, 1, width) for layer, width in ((1, 16), (2, 32))
            for kind, make in (("mean", torch.zeros), ("var", torch.ones))}  # fmt: skip


def forward(
    weights: Weights, images: Tensor, norms: Weights | None, *, training: bool = False, mask: Tensor | None = None
) -> Tensor:
    """Return outputs [M, B, C].

    Args:
        weights: parameters.
        images: patches [M, B, 16, 9].
        norms: running statistics; None: the network has no BatchNorm.
        training: the statistics are the batch's, and the running ones follow; else the running ones are taken.
        mask: [M, B], 1 where there is an image; None: everywhere.
    """
    networks, size = images.shape[:2]
    hidden = torch.baddbmm(weights["b1"], images.reshape(networks, size * 16, 9), weights["w1"])
    hidden = torch.relu(_norm(hidden, weights, norms, 1, training, mask)).view(networks * size, 4, 4, 16)
    hidden = functional.pad(hidden, (0, 0, 1, 1, 1, 1)).view(networks * size, 36, 16)
    hidden = hidden.index_select(1, torch.tensor(PLACES)).view(networks, size * 4, 144)
    hidden = torch.baddbmm(weights["b2"], hidden, weights["w2"])
    hidden = torch.relu(_norm(hidden, weights, norms, 2, training, mask)).view(networks, size, 128)
    return torch.baddbmm(weights["b3"], hidden, weights["w3"])


def _norm(
    hidden: Tensor, weights: Weights, norms: Weights | None, layer: int, training: bool, mask: Tensor | None
) -> Tensor:
    """Return [M, B x places, c], normalised over a network's images and their places."""
    if norms is None:
        return hidden
    scale, shift = weights[f"g{layer}"], weights[f"e{layer}"]
    kept_mean, kept_var = norms[f"mean{layer}"], norms[f"var{layer}"]
    if not training:
        return (hidden - kept_mean) * (scale * torch.rsqrt(kept_var + 1e-5)) + shift
    if mask is None:
        var, mean = torch.var_mean(hidden, 1, keepdim=True, unbiased=False)
        number = torch.tensor(float(hidden.shape[1]))
    else:
        counted = mask.repeat_interleave(hidden.shape[1] // mask.shape[1], 1)[..., None]
        number = counted.sum(1, keepdim=True)
        mean = (hidden * counted).sum(1, keepdim=True) / number
        var = ((hidden - mean).square() * counted).sum(1, keepdim=True) / number
    with torch.no_grad():
        kept_mean.mul_(DECAY).add_((1 - DECAY) * mean)
        kept_var.mul_(DECAY).add_((1 - DECAY) * var * (number / (number - 1).clamp(min=1)))
    return (hidden - mean) * (scale * torch.rsqrt(var + 1e-5)) + shift


class Adam:
    """Adam over stacked weights, of which the first k may be stepped alone."""

    def __init__(self, weights: Weights, betas: tuple[float, float] = (0.9, 0.999), lr: float = 1e-3):
        self._first = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._second = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._betas, self._lr, self._steps = betas, lr, 0

    def step(self, weights: Weights, gradients: Sequence[Tensor]) -> None:
        """Step the first k networks in place, as many as there are gradients of [k, ...]."""
        self._steps += 1
        one, two = self._betas
        corrected = self._lr / (1 - one**self._steps)
        for (name, value), gradient in zip(weights.items(), gradients, strict=True):
            k = len(gradient)
            first = self._first[name][:k].mul_(one).add_(gradient, alpha=1 - one)
            second = self._second[name][:k].mul_(two).addcmul_(gradient, gradient, value=1 - two)
            value[:k].addcdiv_(first, (second / (1 - two**self._steps)).sqrt_().add_(1e-8), value=-corrected)


class Turns:
    """Minibatches of clients that have different numbers of samples: those with most batches come first, and stay."""

    def __init__(self, sizes: Sequence[int], epochs: int, batch: int, generators: Sequence[torch.Generator]):
        self.order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
        self._sizes, self._batch, self._epochs, self._generators = sizes, batch, epochs, generators
        self._per = [-(-sizes[place] // batch) for place in self.order]
        self._orders: list[Tensor] = [torch.empty(0)] * len(sizes)
        self.steps = self._per[0] * epochs

    def rows(self, step: int) -> list[Tensor]:
        """Return which of its samples each client of `order` takes that still has steps to go."""
        found = []
        for place in range(sum(per * self._epochs > step for per in self._per)):
            _, batch = divmod(step, self._per[place])
            client = self.order[place]
            if batch == 0:
                self._orders[place] = torch.randperm(self._sizes[client], generator=self._generators[client])
            found.append(self._orders[place][batch * self._batch : (batch + 1) * self._batch])
        return found

    def padded(self, rows: Sequence[Tensor], samples: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the rows of clients' samples as [k, B, ...], and the mask [k, B]."""
        width = max(map(len, rows))
        found = samples[0].new_zeros((len(rows), width, *samples[0].shape[1:]))
        mask = torch.zeros(len(rows), width)
        for place, row in enumerate(rows):
            found[place, : len(row)], mask[place, : len(row)] = samples[self.order[place]][row], 1
        return found, mask

    def back(self, weights: Weights) -> Weights:
        """Return networks that were in `order` as clients are."""
        return take(weights, torch.tensor(self.order).argsort())


def train(
    weights: Weights, norms: Weights, images: Sequence[Tensor], labels: Sequence[Tensor], offsets: Tensor,
    generators: Sequence[torch.Generator], epochs: int = 10, batch: int = 32,
) -> tuple[Weights, Weights]:  # fmt: skip
    """Return M networks and their statistics, each trained on a client's samples by cross-entropy; Adam, 0.001.

    Args:
        weights: what each begins from; `norms` likewise.
        images: patches [n, 16, 9] of each client; `labels` [n] likewise.
        offsets: what is added to the logits of each [M, C].
        generators: of each client's order.
    """
    turns = Turns([len(each) for each in labels], epochs, batch, generators)
    order = torch.tensor(turns.order)
    trained, kept = take(weights, order), take(norms, order)
    adam = Adam(trained)
    for step in range(turns.steps):
        rows = turns.rows(step)
        inputs, mask = turns.padded(rows, images)
        targets, _ = turns.padded(rows, labels)
        leaves = {name: value[: len(rows)].detach().requires_grad_() for name, value in trained.items()}
        logits = forward(leaves, inputs, take(kept, slice(len(rows))), training=True, mask=mask)
        logits = logits + offsets[order[: len(rows)], None]
        losses = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(mask.shape)
        total = ((losses * mask).sum(1) / mask.sum(1)).sum()
        gradients = torch.autograd.grad(total, list(leaves.values()))
        with torch.no_grad():
            adam.step(trained, gradients)
    return turns.back(trained), turns.back(kept)


def distil(
    weights: Weights, norms: Weights, images: Tensor, targets: Tensor, generator: torch.Generator, epochs: int = 10,
    batch: int = 64,
) -> None:  # fmt: skip
    """Train R students in place on patches [R, S, 16, 9] and probabilities [R, S, C], all in one order; Adam, 0.001."""
    adam = Adam(weights)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(targets.shape[1], generator=generator), batch):
            leaves = {name: value.detach().requires_grad_() for name, value in weights.items()}
            logs = forward(leaves, images[:, rows], norms, training=True).log_softmax(-1)
            loss = -(targets[:, rows] * logs).sum(-1).mean(1).sum()
            gradients = torch.autograd.grad(loss, list(leaves.values()))
            with torch.no_grad():
                adam.step(weights, gradients)
