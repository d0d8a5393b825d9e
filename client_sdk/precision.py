"""Low precision on the device: train through one bit a weight, keep float weights while the round lasts (FedDF 4.3)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from client_sdk.errors import TrainingError, UsageError
from contract import lowbit, updates
from contract.nn import codec
from contract.tensors import Header


def binarised(weight: Tensor) -> Tensor:
    """Return scale * sign(w) [out, ...], scale = mean |w| of each output channel, sign(0) = +1 (FedDF 4.3).

    `contract.lowbit.binarize` for the forward passes of training: on the weight's own device, whose float64 may be
    missing (MPS), so the scale can differ from what is sent in its last bit.
    """
    wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
    scale = wide.abs().flatten(1).mean(1).to(weight.dtype).view(-1, *[1] * (weight.ndim - 1))
    return torch.where(weight >= 0, scale, -scale)


class Binary:
    """The binarised weights of one round.

    The module holds the float weights; only forward and backward passes see the rounded ones, so that a gradient
    passes straight through to the float weights and the optimiser moves those.

    What rounding loses is not carried on: the next round starts from another model.
    """

    def __init__(self, module: nn.Module, base: Header):
        state = codec.unwrap(module).state_dict(keep_vars=True)
        self.weights = {name: state[name] for name in updates.binary_weights(base)}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the rounded weights in the place of the float ones. Backward passes belong inside, too."""
        latent = {name: weight.data for name, weight in self.weights.items()}
        rounded = {name: binarised(data) for name, data in latent.items()}
        for name, weight in self.weights.items():
            weight.data = rounded[name]
        try:
            yield
        finally:
            for name, weight in self.weights.items():
                weight.data = latent[name]

    def tensors(self) -> dict[str, Tensor]:
        """Return the update's ``bits.`` and ``scale.`` tensors."""
        found = {}
        for name, weight in self.weights.items():
            rounded = lowbit.binarize(codec.state_arrays({name: weight})[name])
            found[updates.BITS + name] = torch.from_numpy(lowbit.pack(rounded.binary))
            found[updates.SCALE + name] = torch.from_numpy(rounded.scale.astype("float32"))
        return found


Mixed = bool | Literal["bfloat16", "float16"]
"""Of forward passes; True: bfloat16, whose range is float32's, so that nothing need be scaled."""
_IN_A_ROW = 20  # halvings from 2**16: beyond, no scale helps


def dtype_named(wanted: Mixed) -> torch.dtype | None:
    """Return what forward passes are to compute in; None: in the network's own.

    Raises:
        UsageError: it is no such name.
    """
    if wanted not in (True, False, "bfloat16", "float16"):
        raise UsageError(f"mixed_precision: {wanted!r} is unknown; pass True, False, 'bfloat16' or 'float16'")
    if not wanted:
        return None
    return torch.float16 if wanted == "float16" else torch.bfloat16


def has(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether mixed precision computes in `dtype` on a device."""
    return has_bfloat16(device) if dtype == torch.bfloat16 else _computes(dtype, device)


def _computes(dtype: torch.dtype, device: torch.device) -> bool:
    try:
        with torch.autocast(device.type, dtype):
            one = torch.ones(1, 1, device=device)
            return bool((one @ one).dtype == dtype)
    except (RuntimeError, TypeError):
        return False


class Scaling:
    """Dynamic loss scaling of float16 (Micikevicius et al. 2018, 3.2), by `torch.amp.GradScaler`, for one round.

    A step whose gradients are not finite is left out, and the scale halved.

    Attributes:
        taken, skipped: steps so far.
    """

    def __init__(self, device: torch.device):
        self.taken = self.skipped = self._in_a_row = 0
        self._scaler = torch.amp.GradScaler(device.type)

    def backward(self, loss: Tensor) -> None:
        """Make the gradients of the scaled loss."""
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale: what is added to them or bounds them is of the loss as it is."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Take the step if all gradients are finite; return whether it was taken.

        Raises:
            TrainingError: so many in a row were not that the scale is not at fault.
        """
        before = self._scaler.get_scale()
        self._scaler.step(optimizer)
        self._scaler.update()
        if self._scaler.get_scale() >= before:
            self.taken, self._in_a_row = self.taken + 1, 0
            return True
        self.skipped, self._in_a_row = self.skipped + 1, self._in_a_row + 1
        if self._in_a_row >= _IN_A_ROW:
            raise TrainingError(
                f"mixed_precision: {_IN_A_ROW} steps in a row had gradients that are NaN or infinite in float16, "
                "whatever the scale; nothing was uploaded. Pass mixed_precision='bfloat16', or leave it out"
            )
        return False


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device computes in bfloat16 by itself, as mixed precision does; CPUs do, the older ones slowly."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return _computes(torch.bfloat16, device)
