"""Optimisers as plans name them: one place for devices and workers."""

from collections.abc import Iterable

import torch
from torch import nn

from contract.local import Adam, Optimizer


def make_optimizer(plan: Optimizer, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return a fresh optimiser of a plan over `parameters`."""
    if isinstance(plan, Adam):
        return torch.optim.Adam(parameters, lr=plan.lr, betas=plan.betas, weight_decay=plan.weight_decay)
    return torch.optim.SGD(parameters, lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay)
