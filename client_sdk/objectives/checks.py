"""Checks that the objectives share; they refuse with the stable codes of `contract.errors.RuleError`."""

import math

import torch
from torch import Tensor

from contract.errors import RuleError


def same_shape(what: str, *tensors: Tensor) -> None:
    """Refuse tensors of different shapes.

    Raises:
        RuleError: schema_mismatch.
    """
    if any(tensor.shape != tensors[0].shape for tensor in tensors):
        raise RuleError("schema_mismatch", f"{what}: shapes {[list(tensor.shape) for tensor in tensors]} must be one")


def finite(what: str, *tensors: Tensor) -> None:
    """Refuse NaN and infinity.

    Raises:
        RuleError: non_finite.
    """
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        raise RuleError("non_finite", f"{what}: NaN or infinity")


def option(what: str, value: float, *, positive: bool = False) -> None:
    """Refuse a number that is not finite, negative, or (with `positive`) 0.

    Raises:
        RuleError: bad_option.
    """
    if not math.isfinite(value) or value < 0 or (positive and value == 0):
        raise RuleError(
            "bad_option", f"{what} is {value}; it must be finite and {'above' if positive else 'at least'} 0"
        )
