"""Optimisers as plans name them: one place for devices and workers."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from contract.choices import Implementations
from contract.local import Adam, OptimizerChoice, Sgd

_implements: Implementations[Callable[[Any, Iterable[nn.Parameter]], torch.optim.Optimizer]] = Implementations()


def make_optimizer(plan: OptimizerChoice, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return a fresh optimiser of a plan over `parameters`."""
    return _implements.of(plan)(plan, parameters)


@_implements(Adam)
def _adam(plan: Adam, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=plan.lr, betas=plan.betas, weight_decay=plan.weight_decay)


@_implements(Sgd)
def _sgd(plan: Sgd, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay)
