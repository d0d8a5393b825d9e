"""Rates and stopping, slowly: one step after another, from the papers' words."""

import math
from collections.abc import Sequence


def cosine(lr0: float, step: int, total: int) -> float:
    """FedDF 4.1: half a wave from lr0 to 0; cos(x) = 1 - 2 sin(x / 2)^2."""
    return lr0 * (1 - math.sin(math.pi * step / (2 * total)) ** 2)


def swa(lr_high: float, lr_low: float, cycle: int, start: int, total: int) -> tuple[list[float], list[int]]:
    """FedBE 5.1: each cycle falls evenly and ends at lr_low; snapshots at the ends of cycles after `start` steps."""
    rates, collected, within = [], [], 0
    for step in range(1, total + 1):
        within += 1
        rates.append(lr_high - (lr_high - lr_low) * within / cycle)
        if within == cycle:
            within = 0
            if step > start:
                collected.append(step)
    return rates, collected


def early_stop(accuracies: Sequence[float], eval_every: int, patience: int, total: int) -> tuple[int, int, bool]:
    """FedDF 4.1: (where it stops, the best step, whether patience ended it); an equal accuracy is no improvement."""
    best, best_step, waiting = -math.inf, 0, iter(accuracies)
    for step in range(1, total + 1):
        if step % eval_every:
            continue
        accuracy = next(waiting, None)
        if accuracy is None:
            break
        if accuracy > best:
            best, best_step = accuracy, step
        if step - best_step >= patience:
            return step, best_step, True
    return total, best_step, False
