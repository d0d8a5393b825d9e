"""Low precision on the device: train through one bit a weight, keep float weights while the round lasts (FedDF 4.3)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

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


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device computes in bfloat16 by itself, as mixed precision does; CPUs do, the older ones slowly."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        with torch.autocast(device.type, torch.bfloat16):
            one = torch.ones(1, 1, device=device)
            return bool((one @ one).dtype == torch.bfloat16)
    except (RuntimeError, TypeError):
        return False
