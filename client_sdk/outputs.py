"""What a network returned, as logits."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from client_sdk.errors import ModelMismatch

_HALVES = (torch.float16, torch.bfloat16)


def logits_of(returned: Any, batch: int, shape: Sequence[int], inputs: str = "samples") -> Tensor:
    """Return the outputs [batch, *shape] in what a network returned; half precision as float32.

    A tensor is them, and what names them `logits` has them: an object, a named tuple, a dict. A single one in a tuple
    or list is meant, too; of several in a row none is said to be.

    Args:
        inputs: what they are of, for the message.

    Raises:
        ModelMismatch: there are none, or they have another shape; it says what was returned.
    """
    found, wanted = _unwrapped(returned), [batch, *shape]
    if found is None:
        raise ModelMismatch(
            f"model: forward returned {_described(returned)}; one tensor of logits {wanted} is "
            "needed, or an object or dict that calls it 'logits'"
        )
    if list(found.shape) != wanted:
        raise ModelMismatch(
            f"model: returned shape {list(found.shape)} for {batch} {inputs}; logits of shape "
            f"{wanted} are needed, one column per class"
        )
    if not found.is_floating_point():
        raise ModelMismatch(
            f"model: returned {_described(found)}; logits are floating-point numbers, before any argmax"
        )
    return found.float() if found.dtype in _HALVES else found


def _unwrapped(returned: Any) -> Tensor | None:
    if isinstance(returned, Tensor):
        return returned
    named = returned.get("logits") if isinstance(returned, Mapping) else getattr(returned, "logits", None)
    if isinstance(named, Tensor):
        return named
    if isinstance(returned, (tuple, list)) and len(returned) == 1 and isinstance(returned[0], Tensor):
        return returned[0]
    return None


def _described(returned: Any) -> str:
    kind = type(returned).__name__
    if isinstance(returned, Tensor):
        return f"a tensor of {str(returned.dtype).removeprefix('torch.')} {list(returned.shape)}"
    if isinstance(returned, Mapping):
        return f"a {kind} with {', '.join(repr(key) for key in list(returned)[:6]) or 'nothing'}"
    if isinstance(returned, (tuple, list)):
        parts = ", ".join(_described(part) for part in returned[:3])
        return f"a {kind} of {len(returned)}" + (f" ({parts}{', …' if len(returned) > 3 else ''})" if returned else "")
    return "None" if returned is None else f"a {kind}"


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the dtype in which a network takes floating inputs: that of its first floating-point parameter."""
    return next((value.dtype for value in module.parameters() if value.is_floating_point()), torch.float32)
