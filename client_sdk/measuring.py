"""How good a network is on samples that it is not trained on: the task's metrics, and its mean loss."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from client_sdk import modes
from client_sdk.data import Samples
from client_sdk.errors import DatasetError
from client_sdk.outputs import dtype_of, logits_of
from contract.measures import meter
from contract.nn import losses
from contract.tasks import TASKS


def measure(
    module: nn.Module,
    samples: Samples,
    device: torch.device,
    *,
    batch_size: int,
    on_pass: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Return the task's metrics by name, and its mean loss as `loss`.

    Nothing is drawn at random that is not seeded, and the
    network is as before afterwards, on `device`.

    Args:
        samples: checked against the task.
        on_pass: called before each batch.

    Raises:
        ModelMismatch: the output is not the task's.
        DatasetError: nothing is labelled.
    """
    assert samples.task is not None
    task, found, lost = samples.task, meter(samples.task), 0.0
    module.to(device)
    rows = list(torch.split(torch.arange(len(samples)), batch_size))
    with modes.evaluation(module), torch.no_grad():
        for inputs, labels in samples.given_as(dtype_of(module)).read(rows, device):
            if on_pass is not None:
                on_pass()
            outputs = logits_of(module(inputs), len(labels), task.output_shape)
            lost += float(losses.hard(outputs, labels, task)) * len(labels)
            found.add(outputs.double().cpu().numpy(), labels.cpu().numpy())
    try:
        figures = found.figures()
    except ValueError as error:
        raise DatasetError("labels", str(error)) from error
    names = [metric.name for metric in TASKS[task.kind].metrics]
    return {name: figures[name] for name in names} | {"loss": lost / len(samples)}
