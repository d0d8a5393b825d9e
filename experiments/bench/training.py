"""Plain loops in PyTorch as one writes them by hand: what the bench's parts hold ours against.

They take the same networks, weights, samples and orders as ours do, and give the same results; that is checked.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from contract.nn.registry import build, initialise
from contract.wire.federations import Task
from experiments.evidence.harness import task_of

IMAGES = task_of(10, 3, 32, 32)
BATCH = 256


def images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return made-up images [N, 3, 32, 32] and labels [N]."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.random((count, 3, 32, 32), np.float32)), torch.from_numpy(rng.integers(0, 10, count))


def network(architecture: str, path: Path, device: str, task: Task = IMAGES) -> nn.Module:
    """Return a network with a file's weights, laid out as convolutions on a CPU like it."""
    module = build(architecture, {}, task=task)
    module.load_state_dict(load_file(path))
    return module.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def write_networks(architecture: str, folder: Path, count: int) -> list[Path]:
    """Write networks with weights of their own."""
    from contract.nn.codec import save_state

    paths = [folder / f"{architecture}-{number}.safetensors" for number in range(count)]
    for number, path in enumerate(paths):
        save_state(initialise(architecture, {}, IMAGES, number), path)
    return paths


def label(architecture: str, teachers: Sequence[Path], inputs: Tensor, device: str) -> Tensor:
    """Return the mean of the teachers' logits [N, C] (FedDF, AVGLOGITS)."""
    total = torch.zeros(len(inputs), IMAGES.num_classes, device=device)
    for path in teachers:
        module = network(architecture, path, device).eval()
        with torch.inference_mode():
            for start in range(0, len(inputs), BATCH):
                batch = inputs[start : start + BATCH].to(device)
                total[start : start + BATCH] += module(batch.contiguous(memory_format=torch.channels_last))
    return (total / len(teachers)).cpu()


def teach(student: nn.Module, inputs: Tensor, logits: Tensor, order: Sequence[Tensor], rate: float) -> float:
    """Train a student on pseudo-labels by KL, Adam and batches [B] of `order`; return the mean loss."""
    student.train()
    total = torch.zeros((), device=inputs.device)
    optimizer = torch.optim.Adam(student.parameters(), lr=rate)
    for rows in order:
        optimizer.zero_grad()
        log_q = functional.log_softmax(student(inputs[rows]), dim=1)
        log_p = functional.log_softmax(logits[rows], dim=1)
        loss = functional.kl_div(log_q, log_p, reduction="batchmean", log_target=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.detach()
    return float(total) / max(len(order), 1)  # the device is waited for


def train(
    module: nn.Module, inputs: Tensor, labels: Tensor, order: Sequence[Tensor], rate: float
) -> tuple[float, float]:
    """Train a network on labels by SGD; return mean loss and accuracy over the batches, as one shows them."""
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    lost, right, seen = torch.zeros((), device=inputs.device), torch.zeros((), device=inputs.device), 0
    for rows in order:
        batch, wanted = inputs[rows], labels[rows]
        optimizer.zero_grad()
        outputs = module(batch)
        loss = functional.cross_entropy(outputs, wanted)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        lost += loss.detach() * len(rows)
        right += (outputs.detach().argmax(1) == wanted).sum()
        seen += len(rows)
    return float(lost) / seen, float(right) / seen


def discriminate(
    module: nn.Module,
    generator: nn.Module,
    inputs: Tensor,
    order: Sequence[Tensor],
    noise: Callable[[int], Tensor],
    rate: float,
) -> float:
    """Train a discriminator with two sigmoids against a generator's images (FedGO, Alg. 3); return the mean loss."""
    module.train()
    total = torch.zeros((), device=inputs.device)
    generator.eval()
    optimizer = torch.optim.Adam(module.parameters(), lr=rate, betas=(0.5, 0.999))
    for rows in order:
        real = inputs[rows] * 2 - 1
        with torch.no_grad():
            fake = generator(noise(len(rows)))
        a, b = torch.sigmoid(module(real)), torch.sigmoid(module(fake))
        loss = functional.softplus(-a).mean() + functional.softplus(b).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.detach()
    return float(total) / max(len(order), 1)


def check_same(ours: nn.Module, plain: nn.Module, what: str) -> None:
    """Hold the two sides' networks against each other.

    Raises:
        RuntimeError: they differ, so that their times cannot be compared.
    """
    theirs = plain.state_dict()
    for name, value in ours.state_dict().items():
        if not torch.allclose(value.cpu(), theirs[name].cpu(), rtol=1e-3, atol=1e-4):
            raise RuntimeError(f"{what}: ours and the plain loop give different weights ({name})")
