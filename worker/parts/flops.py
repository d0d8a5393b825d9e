"""What a network costs: its parameters, and floating-point operations a sample, counted on its shapes alone.

Only matrix products and convolutions are counted, each multiplication with its addition as two operations.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from contract.nn.frozen import frozen_but
from contract.nn.registry import build
from contract.nn.seeding import global_seed
from contract.wire.federations import Task

_BATCH = 2  # BatchNorm has no variance of one


@dataclass(frozen=True)
class Effort:
    """What a network costs.

    Attributes:
        parameters: numbers that are trained.
        forward: operations of one sample's way through it; None where its passes cannot be counted.
        training: those of forward and backward.
    """

    parameters: int
    forward: int | None = None
    training: int | None = None


def effort_of(
    architecture: str, options: dict[str, Any], task: Task, moving: frozenset[str] | None = None
) -> Effort | None:
    """Return what a network by name costs; None where it cannot be built here.

    Args:
        architecture: its name.
        options: its own.
        task: what it is for.
        moving: names of the tensors that are trained; None for all.
    """
    return _effort_of(architecture, repr(sorted(options.items())), moving, _Given(options, task))


def forward_flops(architecture: str, options: dict[str, Any], task: Task, samples: int) -> int | None:
    """Return the operations of samples' way through a network; None where they cannot be counted."""
    effort = effort_of(architecture, options, task)
    return None if effort is None or effort.forward is None else effort.forward * samples


def training_flops(
    architecture: str, options: dict[str, Any], task: Task, samples: int, moving: frozenset[str] | None = None
) -> int | None:
    """Return the operations of samples' way through a network and back; None where they cannot be counted."""
    effort = effort_of(architecture, options, task, moving)
    return None if effort is None or effort.training is None else effort.training * samples


def plus(one: int | None, other: int | None) -> int | None:
    """Return the sum of two counts; what is not known makes it unknown."""
    return None if one is None or other is None else one + other


class _Given:
    """Arguments that the cache is not to look at: they follow from the others, within one federation."""

    def __init__(self, options: dict[str, Any], task: Task):
        self.options, self.task, self._key = options, task, task.model_dump_json()

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Given) and self._key == other._key


@lru_cache(maxsize=64)
def _effort_of(architecture: str, _: str, moving: frozenset[str] | None, given: _Given) -> Effort | None:
    known: Effort | None = None
    for device in ("meta", "cpu"):  # a network that looks at values runs on real ones
        try:
            with torch.device(device):
                module = build(architecture, given.options, task=given.task)
            with frozen_but(module, moving):
                known = Effort(_trained(module))
                return measure(module, lambda module=module, device=device: _inputs(module, given.task, device))  # type: ignore[misc]
        except Exception:  # noqa: BLE001 - whatever it cannot do, the job can go on without the figure
            continue
    return known


def _trained(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters() if each.requires_grad)


def _inputs(module: nn.Module, task: Task, device: str) -> Tensor:
    """Return two samples of what a network reads: noise for a generator, else the task's inputs."""
    latent = getattr(module, "latent", None)
    shape = task.input.shape if latent is None else [int(latent)]
    tokens = latent is None and task.input.is_tokens
    return torch.ones(_BATCH, *shape, dtype=torch.int64 if tokens else torch.float32, device=device)


def measure(module: nn.Module, inputs: Callable[[], Tensor]) -> Effort:
    """Count one pass forward and back of inputs [B, ...], and divide by B.

    Args:
        module: in any mode, on the inputs' device; it counts in train mode.
        inputs: gives what it reads.
    """
    module.train()
    given = inputs()
    with global_seed(0), _plain(), FlopCounterMode(display=False, custom_mapping=_GROUPED) as counter:
        outputs = module(given)
        forward = counter.get_total_flops()
        outputs.float().sum().backward()
        training = counter.get_total_flops()
    return Effort(_trained(module), forward // len(given), training // len(given))


@contextmanager
def _plain() -> Iterator[None]:
    """Run without oneDNN, to which a recurrent layer is one operation that nobody counts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of settings for other devices
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _conv_backward(
    grad_out_shape: Any,
    x_shape: Any,
    w_shape: Any,
    _bias: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,
    _output_padding: Any,
    _groups: int,
    output_mask: Any,
    out_shape: Any,
    **_: Any,
) -> int:
    """Return the operations of a convolution's backward pass: as many as forward for each gradient that is wanted.

    torch's own formula takes every output channel for a function of all input channels, which grouped ones are not.
    """
    return conv_flop_count(x_shape, w_shape, grad_out_shape, transposed) * (bool(output_mask[0]) + bool(output_mask[1]))


_GROUPED = {torch.ops.aten.convolution_backward: _conv_backward}
