"""Filters: which received models count at all."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worker.parts.arrays import finite, floats, option
from worker.parts.errors import PartError


@dataclass(frozen=True)
class Kept:
    """Who stays.

    Attributes:
        kept: indices of the models that stay, ascending.
        threshold: accuracy below which a model is dropped.
        all_dropped: True where all were below, and all stay.
    """

    kept: list[int]
    threshold: float
    all_dropped: bool


def drop_worst(accuracies: Sequence[float], num_classes: int, factor: float = 1.2) -> Kept:
    """Drop models strictly below factor / C on the validation set (FedDF 4.2; the factor is the authors' code's).

    Args:
        accuracies: top-1 of each model, in [0, 1].
        num_classes: C.
        factor: times chance.

    Raises:
        PartError: no_participants, non_finite, out_of_range (an accuracy outside [0, 1]), too_few_classes (C below 1),
            bad_option (factor not positive).
    """
    option("factor", factor, open_low=True)
    if num_classes < 1:
        raise PartError("too_few_classes", f"{num_classes} classes; chance is not defined")
    if len(accuracies) == 0:
        raise PartError("no_participants", "there is no model to judge")
    values = finite("accuracies", floats("accuracies", accuracies, 1))
    if ((values < 0) | (values > 1)).any():
        raise PartError("out_of_range", "an accuracy is outside [0, 1]; give fractions, not per cent")
    threshold = factor / num_classes
    kept = [int(index) for index in np.flatnonzero(values >= threshold)]
    return Kept(kept or list(range(len(values))), threshold, all_dropped=not kept)
