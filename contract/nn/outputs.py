"""What a network returned: the tensor that it means, and words for the rest."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def meant(returned: Any) -> Tensor | None:
    """Return the outputs in what a network returned; None where nothing says which they are.

    A tensor is them, and what names them `logits` has them: an object, a named tuple, a dict. A single one in a tuple
    or list is meant, too; of several in a row none is said to be.
    """
    if isinstance(returned, Tensor):
        return returned
    named = returned.get("logits") if isinstance(returned, Mapping) else getattr(returned, "logits", None)
    if isinstance(named, Tensor):
        return named
    if isinstance(returned, (tuple, list)) and len(returned) == 1 and isinstance(returned[0], Tensor):
        return returned[0]
    return None


def described(returned: Any) -> str:
    """Return what was returned, for a message: a tensor's type and shape, a dict's keys, a row's first three."""
    kind = type(returned).__name__
    if isinstance(returned, Tensor):
        return f"a tensor of {str(returned.dtype).removeprefix('torch.')} {list(returned.shape)}"
    if isinstance(returned, Mapping):
        return f"a {kind} with {', '.join(repr(key) for key in list(returned)[:6]) or 'nothing'}"
    if isinstance(returned, (tuple, list)):
        parts = ", ".join(described(part) for part in returned[:3])
        return f"a {kind} of {len(returned)}" + (f" ({parts}{', …' if len(returned) > 3 else ''})" if returned else "")
    return "None" if returned is None else f"a {kind}"
