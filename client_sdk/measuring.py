"""How good a network is on samples that it is not trained on: its accuracy, and its mean loss."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from client_sdk import modes
from client_sdk.data import Samples
from client_sdk.outputs import dtype_of, logits_of


def measure(
    module: nn.Module,
    samples: Samples,
    device: torch.device,
    *,
    batch_size: int,
    on_pass: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Return the task's metrics by name, `accuracy`, and the mean cross-entropy as `loss`.

    Nothing is drawn at random that is not seeded, and the
    network is as before afterwards, on `device`.

    Args:
        samples: checked against the task.
        on_pass: called before each batch.

    Raises:
        ModelMismatch: the output is not the task's.
    """
    assert samples.task is not None
    classes, right, lost = samples.task.num_classes, 0, 0.0
    module.to(device)
    rows = list(torch.split(torch.arange(len(samples)), batch_size))
    with modes.evaluation(module), torch.no_grad():
        for inputs, labels in samples.given_as(dtype_of(module)).read(rows, device):
            if on_pass is not None:
                on_pass()
            logits = logits_of(module(inputs), len(labels), classes)
            lost += float(functional.cross_entropy(logits, labels, reduction="sum"))
            right += int((logits.argmax(1) == labels).sum())
    return {"accuracy": right / len(samples), "loss": lost / len(samples)}
