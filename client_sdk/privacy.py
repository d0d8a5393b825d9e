"""DP-SGD through Opacus: per-sample gradients clipped, noise added, the privacy that was spent (Abadi et al. 2016).

Noise and the choice of samples come from the operating system's randomness and not from the federation's seed, which
the operator knows: noise that can be drawn again can be taken off again. A private round therefore cannot be repeated.
Whatever else is drawn in a private step (dropout, mirrored images, a generator's noise) does so too: drawn from a known
seed, in the order of the samples of a batch, it would differ for all samples behind one that is left out.

What is promised is about one sample: whether it holds what it holds or nothing (the zero-out adjacency of Kairouz et
al. 2021). How many samples there are is told.
"""

import importlib
import secrets
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from pydantic import BaseModel, Field
from torch import Tensor, nn

from client_sdk.data import Samples
from client_sdk.errors import ModelMismatch, UsageError
from client_sdk.named import Inputs
from client_sdk.sources import seed_of
from contract.installation import install
from contract.local import LocalPlan, Privacy

_SHARES_DIFFER = 1e-2
"""Largest difference of a gradient from the mean of its shares, relative to its norm, that rounding explains."""
_REMARK = "Full backward hook is firing"
_silencing = threading.Lock()


class Spent(BaseModel):
    """Steps of one round, as the accountant counts them."""

    noise_multiplier: float = Field(gt=0)
    sample_rate: float = Field(gt=0, le=1)
    steps: int = Field(ge=0)


def epsilon(spent: Sequence[Spent], delta: float) -> float:
    """Return epsilon at `delta` for all of `spent` together (Rényi accountant with Poisson sampling)."""
    accountant = _opacus().accountants.RDPAccountant()
    accountant.history = [(entry.noise_multiplier, entry.sample_rate, entry.steps) for entry in spent]
    return float(accountant.get_epsilon(delta)) if accountant.history else 0.0


def secret_seed() -> int:
    """Return a seed that nobody knows."""
    return secrets.randbits(63)


class Mechanism:
    """The subsampled Gaussian mechanism: draws each step's samples, clips and noises their gradients, and counts.

    Attributes:
        order: source of random numbers that nobody can draw again, on the CPU.
        spent: what all of its steps cost.

    Raises:
        UsageError: Opacus is not installed.
    """

    def __init__(
        self,
        options: Privacy,
        optimizer: torch.optim.Optimizer,
        samples: Samples,
        device: torch.device,
        *,
        batch_size: int,
        epochs: int,
    ):
        self.samples, self.device = samples, device
        self.rate = min(1.0, batch_size / len(samples))
        self.steps_per_epoch = -(-len(samples) // batch_size)
        self.spent = Spent(
            noise_multiplier=options.noise_multiplier,
            sample_rate=self.rate,
            steps=self.steps_per_epoch * epochs,
        )
        self.order = torch.Generator().manual_seed(secret_seed())
        self._optimizer = _opacus().optimizers.DPOptimizer(
            optimizer,
            noise_multiplier=options.noise_multiplier,
            max_grad_norm=options.max_grad_norm,
            expected_batch_size=self.rate * len(samples),
            generator=torch.Generator(device=device).manual_seed(secret_seed()),
        )

    def batches(self) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield one epoch of batches, each with every sample at the same chance; a batch can be empty."""
        count, seed = len(self.samples), seed_of(self.order)
        rows = [
            torch.rand(count, generator=self.order).lt(self.rate).nonzero().flatten()
            for _ in range(self.steps_per_epoch)
        ]
        drawn = self.samples.read([row for row in rows if len(row)], self.device, seed, trained=True)
        for row in rows:
            yield next(drawn) if len(row) else (torch.empty(0), torch.empty(0, dtype=torch.int64))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, those per sample included."""
        self._optimizer.zero_grad(set_to_none)

    def privatise(self, batch: int) -> None:
        """Replace each parameter's gradient by the clipped and noised sum over the batch, divided by its mean size."""
        for parameter in self._optimizer.params:
            if parameter.grad_sample is None:  # an empty batch, or a parameter that the loss does not reach
                parameter.grad_sample = parameter.new_zeros(batch, *parameter.shape)
        self._optimizer.pre_step()


class PrivateSteps(Mechanism):
    """Turns the gradients of one round's training into private ones. Made with the module in training mode.

    Raises:
        UsageError: Opacus is not installed.
        ModelMismatch: the module mixes the samples of a batch, or has layers without per-sample gradients.
    """

    def __init__(
        self,
        plan: LocalPlan,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        samples: Samples,
        device: torch.device,
    ):
        opacus = _opacus()
        _silence_torch()
        _check_module(opacus, module)
        self._module = module
        self._unchecked: dict[str, nn.Parameter] | None = dict(module.named_parameters())
        self._buffers = {name: value.clone() for name, value in _sent_buffers(module).items()}
        self._hooks = opacus.GradSampleModule(module)
        options = plan.privacy or Privacy()
        super().__init__(options, optimizer, samples, device, batch_size=plan.batch_size, epochs=plan.epochs)

    def privatise(self, batch: int) -> None:
        """As in `Mechanism`; at the first step, see that Opacus sees what it is to bound."""
        if batch and self._unchecked is not None:
            check_shares(self._unchecked)
            self._unchecked = None
        super().privatise(batch)

    def check_buffers(self) -> None:
        """Refuse a module that has changed its buffers: they are sent, and noise reaches gradients alone.

        Raises:
            ModelMismatch: naming the first such buffer.
        """
        for name, value in _sent_buffers(self._module).items():
            if name not in self._buffers or not torch.equal(value, self._buffers[name]):
                raise ModelMismatch(
                    f"model: buffer {name!r} changed while the module was trained, and with local.privacy it would be "
                    "sent without noise; let it stay as it is, or take it out of the state dict (persistent=False)",
                    (name,),
                )

    def close(self) -> None:
        """Take Opacus's hooks off the module."""
        self._hooks.cleanup()


def _sent_buffers(module: nn.Module) -> dict[str, Tensor]:
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return {name: value for name, value in module.state_dict().items() if name not in parameters}


def check_shares(parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse parameters whose gradient is not the mean of the samples' own, of which noise alone would be left.

    Opacus sees what layers do. A weight that is used by a function (``F.linear(x, self.head.weight)``), or tied to
    another and used so, has a gradient that it does not see, or sees a part of.

    Args:
        parameters: after the backward pass of a batch, with ``grad``, and ``grad_sample`` [B, ...] where Opacus has
            one.

    Raises:
        ModelMismatch: naming the parameter.
    """
    for name, parameter in parameters.items():
        if not parameter.requires_grad or parameter.grad is None:
            continue
        shares = getattr(parameter, "grad_sample", None)
        mean = torch.zeros_like(parameter.grad) if shares is None else shares.mean(0)
        missed = float((mean - parameter.grad).norm())
        if shares is None or missed > _SHARES_DIFFER * float(parameter.grad.norm()) + 1e-6:
            what = (
                "no sample's share in its gradient is seen" if shares is None else "a part of its gradient is not seen"
            )
            raise ModelMismatch(
                f"model: parameter {name!r}: {what} by DP-SGD, which would train it by noise. Use it by its own layer "
                "only (self.head(x), not F.linear(x, self.head.weight)), and not in two places that share it",
                (name,),
            )


def _silence_torch() -> None:
    """Ignore torch's remark on hooks of a first layer whose input takes no gradient, such as token ids.

    Once for the whole process: a filter that comes and goes disturbs the training of other threads.
    """
    with _silencing:
        if not any(getattr(entry[1], "pattern", None) == _REMARK for entry in warnings.filters):
            warnings.filterwarnings("ignore", message=_REMARK)


def _opacus() -> Any:
    try:
        return importlib.import_module("opacus")
    except ImportError as error:
        raise UsageError(
            "local.privacy: this federation asks for differential privacy, which needs Opacus; "
            f"{install('client', 'privacy')}"
        ) from error


def check_apart(module: nn.Module, what: str = "model") -> None:
    """Refuse BatchNorm.

    Raises:
        ModelMismatch: naming the layer.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ModelMismatch(
                f"{what}: layer {name!r} is BatchNorm, which mixes the samples of a batch, so no sample's share can be "
                "bounded. With local.privacy take GroupNorm: the architecture's option norm, or your own module"
            )


def _check_module(opacus: Any, module: nn.Module) -> None:
    check_apart(module)
    problems = [str(error) for error in opacus.validators.ModuleValidator.validate(module, strict=False)]
    if problems:
        raise ModelMismatch(f"model: Opacus has no per-sample gradients for it: {problems[0]}")
