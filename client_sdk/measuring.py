"""How good a network is on samples that it is not trained on: the task's metrics, and its mean loss."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from client_sdk import modes, named
from client_sdk.data import Samples
from client_sdk.errors import DatasetError
from client_sdk.metrics import figures_of
from client_sdk.outputs import dtype_of, logits_of
from client_sdk.packaged import told
from contract.measures import Figure, meter, value_of
from contract.metrics import MetricChoice
from contract.nn import losses
from contract.tasks import TASKS


def measure(
    module: nn.Module,
    samples: Samples,
    device: torch.device,
    *,
    batch_size: int,
    further: Iterable[MetricChoice] = (),
    on_pass: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Return the task's metrics by name, its mean loss as `loss`, and further metrics by kind, where they are here.

    Nothing is drawn at random that is not seeded, and the
    network is as before afterwards, on `device`.

    Args:
        samples: checked against the task.
        further: what is measured beside the task's own.
        on_pass: called before each batch.

    Raises:
        ModelMismatch: the output is not the task's.
        DatasetError: nothing is labelled.
        PackageFailed: the code of a further metric does.
    """
    assert samples.task is not None
    task, found, lost = samples.task, meter(samples.task), 0.0
    beside = figures_of(further, task)
    module.to(device)
    rows = list(torch.split(torch.arange(len(samples)), batch_size))
    with modes.evaluation(module), torch.no_grad():
        for inputs, labels in samples.given_as(dtype_of(module)).read(rows, device):
            if on_pass is not None:
                on_pass()
            outputs = logits_of(named.through(module, inputs), len(labels), task.output_shape)
            lost += float(losses.hard(outputs, labels, task)) * len(labels)
            values, wanted = outputs.double().cpu().numpy(), labels.cpu().numpy()
            found.add(values, wanted)
            for choice, figure in beside:
                with told(choice):
                    figure.add(values.copy(), wanted)
    try:
        figures = found.figures()
    except ValueError as error:
        raise DatasetError("labels", str(error)) from error
    names = [metric.name for metric in TASKS[task.kind].metrics]
    return {name: figures[name] for name in names} | {"loss": lost / len(samples)} | _values(beside)


def _values(figures: Iterable[tuple[MetricChoice, Figure]]) -> dict[str, float]:
    found = {}
    for choice, figure in figures:
        with told(choice):
            found[choice.kind] = value_of(choice, figure)
    return found
