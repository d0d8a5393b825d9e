"""What a network returned, as logits."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from client_sdk.errors import ModelMismatch
from contract.nn.outputs import described, meant

_HALVES = (torch.float16, torch.bfloat16)


def logits_of(returned: Any, batch: int, shape: Sequence[int], inputs: str = "samples") -> Tensor:
    """Return the outputs [batch, *shape] in what a network returned; half precision as float32.

    Which they are says `contract.nn.outputs.meant`; of several things in a tuple the first, if it may be an output.

    Args:
        inputs: what they are of, for the message.

    Raises:
        ModelMismatch: there are none, or they have another shape; it says what was returned.
    """
    found, wanted = meant(returned), [batch, *shape]
    found = _first(returned, batch) if found is None else found
    if found is None:
        raise ModelMismatch(
            f"model: forward returned {described(returned)}; one tensor of logits {wanted} is "
            "needed, or an object or dict that calls it 'logits', or a tuple that begins with it"
        )
    if list(found.shape) != wanted:
        raise ModelMismatch(
            f"model: returned shape {list(found.shape)} for {batch} {inputs}; logits of shape "
            f"{wanted} are needed, one {'channel' if len(shape) > 2 else 'column'} per class{_arranging(found, wanted)}"
        )
    if not found.is_floating_point():
        raise ModelMismatch(f"model: returned {described(found)}; logits are floating-point numbers, before any argmax")
    return found.float() if found.dtype in _HALVES else found


def _first(returned: Any, batch: int) -> Tensor | None:
    """Return the first of several things in a row, where it may be outputs of a batch: (logits, …), as torch has it."""
    first = returned[0] if isinstance(returned, tuple | list) and returned else None
    fits = isinstance(first, Tensor) and first.is_floating_point() and first.ndim > 0 and len(first) == batch
    return first if fits else None


def _arranging(found: Tensor, wanted: Sequence[int]) -> str:
    """Return what makes outputs of this shape the wanted ones, as the end of a sentence; "" where nothing is known."""
    have = list(found.shape)
    if len(wanted) > 2 and have == [wanted[0], *wanted[2:], wanted[1]]:
        return "; the classes come last: end in y.movedim(-1, 1)"
    if len(wanted) > 2 and have[:2] == list(wanted[:2]) and len(have) == len(wanted):
        return f"; end in torch.nn.functional.interpolate(y, {tuple(wanted[2:])})"
    if len(wanted) > 2 and have[:2] == list(wanted[:2]) and found[0].numel() == torch.Size(wanted[1:]).numel():
        return f"; end in y.unflatten(2, {tuple(wanted[2:])})"
    return ""


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the dtype in which a network takes floating inputs: that of its first floating-point parameter."""
    return next((value.dtype for value in module.parameters() if value.is_floating_point()), torch.float32)
