"""Reflux on the device: what is trained knows how rare each class is here, what is sent does not."""

from typing import Any

import torch
from torch import Tensor

from client_sdk.methods.base import Method, Work, implements
from client_sdk.named import Inputs
from client_sdk.objectives import prior
from contract.local import PriorAdjustedObjective


@implements(PriorAdjustedObjective)
class PriorAdjusted(Method):
    """Cross-entropy of logits + lambda ln pi; the network itself is left without the offset."""

    @classmethod
    def reads_samples(cls, options: Any) -> bool:
        """The classes are counted before the first step."""
        return True

    def __init__(self, options: PriorAdjustedObjective, work: Work):
        super().__init__(options, work)
        counts = torch.bincount(_labels(work), minlength=work.task.num_classes)
        self._offset = prior.offset(counts, options.weight, options.eps).to(work.device)

    def loss(self, inputs: Inputs, labels: Tensor, logits: Tensor, features: Tensor | None) -> Tensor:
        """Return the loss of the logits with the offset."""
        return super().loss(inputs, labels, logits + self._offset.to(logits.dtype), features)


def _labels(work: Work) -> Tensor:
    """Return the classes [N] of the device's samples, on the CPU."""
    samples = work.samples
    if samples.labels is not None:
        return samples.labels.cpu()
    rows = list(torch.split(torch.arange(len(samples)), work.plan.batch_size))
    return torch.cat([labels.cpu() for _, labels in samples.read(rows, torch.device("cpu"), work.seed)])
