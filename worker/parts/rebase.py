"""Updates that began from an older model are laid onto the round's, so that every rule finds them where it looks.

Symbols: w the round's model, b_k the model that client k began from, u_k what it sent, s_k its factor in (0, 1].
numpy only, in memory of a few blocks.
"""

from pathlib import Path

import numpy as np

from contract.staleness import StalenessChoice, StalenessConstant, StalenessPolynomial
from worker.parts.arrays import Float
from worker.parts.blocks import Readers, blocks, header_of, model_writer, narrow
from worker.registry import implements

_FILES = 3


@implements(StalenessPolynomial)
def _polynomial(choice: StalenessPolynomial, staleness: int) -> float:
    return float((1.0 + staleness) ** -choice.exponent)


@implements(StalenessConstant)
def _constant(_: StalenessConstant, staleness: int) -> float:
    return 1.0


def factor_of(choice: StalenessChoice, staleness: int) -> float:
    """Return what an update counts whose model was replaced so many times since; 1 for a fresh one."""
    found: float = implements.of(choice)(choice, staleness)
    return found


def laid(current: Float, base: Float, update: Float, factor: float, parameter: bool) -> Float:
    """Return a block of an update [n] as a step from the round's model, all in float64.

    Parameters are w + s_k (u_k - b_k): the mean of such by n_k is FedBuff's w + sum n_k s_k (u_k - b_k) / sum n_k (Alg.
    1 line 11, where n_k = 1 and sum n_k = K). Buffers are no sums of steps, and a variance that was changed by a
    difference can be negative: they are w + s_k (u_k - w), between both.
    """
    return current + factor * (update - (base if parameter else current))


def lay_file(update: Path, base: Path, current: Path, target: Path, factor: float) -> None:
    """Write an update as a step from the round's model (`laid`); integers are the update's own.

    Args:
        update: file of u_k, with exactly the model's tensors.
        base: file of b_k.
        current: file of w; its metadata names the buffers.
        target: file to make.
        factor: s_k.

    Raises:
        PartError: schema_mismatch, non_finite.
    """
    header = header_of(current)
    files = [("the round's model", current), ("the model that it began from", base), ("the update", update)]
    with Readers(files, header) as readers, model_writer(target, header) as writer:
        for block in blocks(header, _FILES):
            if not block.floating:
                writer.write(block.name, readers.raw(block)[-1])
                continue
            start, began, ended = readers.floats(block)
            with np.errstate(over="ignore", invalid="ignore"):  # `narrow` finds what overflows
                values = laid(start, began, ended, factor, block.parameter)
            writer.write(block.name, narrow(block.name, values, block.dtype))
