"""Where updates point to: each against the mean of the others, and which of them are alike (no update is changed).

Symbols: w the round's model, d_k = w_k - w the change of client k, c_k its share of the mean, all over the parameters.
Only a part of a large model's values is looked at: runs of them, evenly spaced over all parameters, the same of every
file. A cosine of q independent values is off by about 1 / sqrt(q): less than a hundredth.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contract.tensors import Header
from worker.parts.arrays import Float
from worker.parts.blocks import Block, Readers, Source, blocks, header_of, parameters

VALUES = 1 << 14
"""Of a model are looked at, at most."""
RUN = 256
"""Values that lie side by side are read at once: a page of a file holds many."""
MOST = 1 << 22
"""Values of all updates together: 32 MiB of float64."""
COMPARED = 256
"""Updates of which each pair is compared; of more, only those that are equal are found."""
ALIKE = 0.999
"""Cosine of two changes above which one is the other's copy: two devices' data never make them so alike."""
_SAME_LENGTH = 0.05


@dataclass(frozen=True)
class Direction:
    """Where one update points to.

    Attributes:
        cosine: of d_k and the mean change of all others; None where one of the two is zero, or nobody else is there.
        to_mean: ||w_k - mean|| / ||w||; None where w is zero.
        pull: ||mean - mean without it|| / ||mean - w||: how far the round's step would move without it. None where it
            is alone, or the step zero.
    """

    cosine: float | None
    to_mean: float | None
    pull: float | None


@dataclass(frozen=True)
class Changes:
    """What is looked at of the updates of one model.

    Attributes:
        names: the clients', sorted.
        shares: c_k [n], summing to 1.
        base: ||w||, of the values looked at.
        changes: d_k [n, q], float64.
    """

    names: list[str]
    shares: Float
    base: float
    changes: Float

    def directions(self) -> dict[str, Direction]:
        """Return where each update points to."""
        mean = self.shares @ self.changes
        step = float(np.linalg.norm(mean))
        found = {}
        for name, share, change in zip(self.names, self.shares, self.changes, strict=True):
            off = float(np.linalg.norm(change - mean))
            rest = 1 - float(share)
            alone = len(self.names) == 1 or rest <= 0
            others = None if alone else (mean - share * change) / rest
            found[name] = Direction(
                None if others is None else cosine(change, others),
                off / self.base if self.base > 0 else None,
                None if alone or step == 0 else float(share) / rest * off / step,
            )
        return found

    @property
    def lengths(self) -> dict[str, float]:
        """||d_k|| of the values looked at."""
        return dict(zip(self.names, map(float, np.linalg.norm(self.changes, axis=1)), strict=True))

    def copies(self) -> list[list[str]]:
        """Return the clients whose changes are alike, group by group; those that changed nothing are no copies."""
        lengths = np.linalg.norm(self.changes, axis=1)
        moved = [index for index in range(len(self.names)) if lengths[index] > 0]
        groups: list[list[int]] = []
        for index in moved:
            for group in groups:
                if self._alike(group[0], index, lengths, exactly=len(moved) > COMPARED):
                    group.append(index)
                    break
            else:
                groups.append([index])
        return [[self.names[index] for index in group] for group in groups if len(group) > 1]

    def _alike(self, one: int, other: int, lengths: Float, exactly: bool) -> bool:
        if abs(lengths[one] - lengths[other]) > _SAME_LENGTH * lengths[one]:
            return False
        if exactly:
            return bool(np.array_equal(self.changes[one], self.changes[other]))
        product = float(self.changes[one] @ self.changes[other])
        return product > ALIKE * float(lengths[one] * lengths[other])


def cosine(one: Float, other: Float) -> float | None:
    """Return the cosine of two vectors; None where one is zero."""
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(np.clip(one @ other / length, -1.0, 1.0)) if length > 0 else None


def changes_of(sources: Sequence[Source], base: Path) -> Changes:
    """Read what is looked at of updates; those that are not finite are left out.

    Args:
        sources: files with the model's tensors and what each counts in the mean, at least one of them something.
        base: file of the round's model w; its metadata names the buffers.

    Raises:
        PartError: schema_mismatch, naming the file.
    """
    kept = sorted(sources, key=lambda source: source.name)
    header = header_of(base)
    pieces = list(runs(header, min(VALUES, max(RUN, MOST // max(len(kept), 1)))))
    files = [(f"update of {source.name}", source.path) for source in kept]
    starts, found = [], []
    with Readers([("the round's model", base)], header) as model, Readers(files, header) as updates:
        for block in pieces:
            start = model.floats(block)[0]
            starts.append(start)
            found.append(np.stack([values.astype(np.float64) - start for values in updates.pieces(block)]))
    changes = np.concatenate(found, axis=1) if found else np.zeros((len(kept), 0))
    finite = np.array([np.isfinite(each).all() for each in changes], dtype=bool)
    weights = np.where(finite, [source.weight for source in kept], 0.0)
    total = float(weights.sum())
    shares = weights / total if total > 0 else np.full(len(kept), 1 / max(int(finite.sum()), 1))
    length = float(np.linalg.norm(np.concatenate(starts))) if starts else 0.0
    names = [source.name for source, whole in zip(kept, finite, strict=True) if whole]
    return Changes(names, shares[finite], length, changes[finite])


def runs(header: Header, values: int) -> Iterator[Block]:
    """Return runs of a model's parameters, evenly spaced; of a model with no more than `values` all of them.

    Args:
        header: of a model.
        values: at most, rounded down to whole runs.
    """
    trained = frozenset(parameters(header))
    whole = list(blocks(header, 1, trained.__contains__))
    total = sum(block.count for block in whole)
    if total <= values:
        yield from whole
        return
    count = values // RUN
    wanted = iter([index * total // count for index in range(count)])
    at, position = 0, next(wanted, None)
    for block in whole:
        while position is not None and position < at + block.count:
            start = min(position - at, max(block.count - RUN, 0))
            length = min(RUN, block.count)
            yield Block(block.name, block.start + start, length, block.dtype, block.parameter)
            position = next(wanted, None)
        at += block.count
