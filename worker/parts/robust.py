"""Robust aggregation: means that some lying clients cannot pull where they like. Unweighted, unless said otherwise.

n_k is what a client says of itself, so rules that are to withstand liars do not use it. m clients, f of them liars.

| rule | withstands | source |
| --- | --- | --- |
| coordinate median | f < m / 2 | Yin et al. 2018, Def. 1, Alg. 1 option I |
| trimmed mean, b off each end | f <= b < m / 2 | Yin et al. 2018, Def. 2, Alg. 1 option II |
| Krum, Multi-Krum | m >= 2 f + 3 | Blanchard et al. 2017, section 4 |
| norm clipping | bounds each client's pull, does not remove it | Sun et al. 2019, section 4 |

All assume that honest clients' models are alike; with very different private data an honest outlier is left out too.

Buffers are no part of any distance, and a liar whose parameters look honest could put anything there; so Krum and
clipping take the median of float buffers. Integers, counters mostly, take an order statistic: the lower median, or the
largest that trimming leaves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from contract.tensors import Array, Header
from worker.parts.arrays import Float, option
from worker.parts.blocks import (
    Block,
    Readers,
    Source,
    blocks,
    header_of,
    largest_but,
    model_writer,
    narrow,
    parameters,
    reduce_files,
)
from worker.parts.errors import PartError
from worker.parts.fuse import named, ordered, shares
from worker.parts.norms import Norms


# ----------------------------------------------------------------------------------- rules, on a block [m, n] of values
def median(values: Float) -> Float:
    """Return the median of each coordinate [n] of values [m, n]; with an even number the mean of the middle two."""
    by_size = np.sort(values, axis=0)
    low, high = by_size[(len(values) - 1) // 2], by_size[len(values) // 2]
    return np.asarray(low + (high / 2 - low / 2))


def trimmed_count(clients: int, trim: float) -> int:
    """Return b = ceil(trim m), how many values are left out at each end, at most (m - 1) / 2 rounded down.

    Raises:
        PartError: bad_option (trim outside [0, 0.5)).
    """
    option("trim", trim, high=0.5)
    return min(math.ceil(trim * clients - 1e-9), (clients - 1) // 2)


def trimmed_mean(values: Float, cut: int) -> Float:
    """Return the mean of each coordinate [n] of values [m, n] without its `cut` largest and `cut` smallest values."""
    return np.asarray(np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0))


def centred_gram(values: Float) -> Float:
    """Return the Gram matrix [m, m] of values [m, n] about their median; those of a model's blocks add up.

    About their mean it would be worthless: one liar at 1e38 moves that so far that the others' differences, and the
    distance of another liar among them, vanish in rounding. The median stays among the honest, whose numbers are small.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # what overflows is far from everybody
        centred = values - np.median(values, axis=0)
        return np.asarray(centred @ centred.T)


def squared_distances(gram: Float) -> Float:
    """Return squared distances [m, m] from a Gram matrix [m, m]; 0 on the diagonal, infinity where it overflowed."""
    norms = np.diag(gram)
    with np.errstate(invalid="ignore", over="ignore"):
        found = norms[:, None] + norms[None, :] - 2.0 * gram
    result = np.maximum(np.where(np.isfinite(found), found, np.inf), 0.0)
    np.fill_diagonal(result, 0.0)
    return np.asarray(result)


def krum_order(distances: Float, byzantine: int) -> list[int]:
    """Return the clients by Krum score, best first: the sum of squared distances to the m - f - 2 nearest others.

    Ties go to the lower index.

    Args:
        distances: squared distances [m, m] between the clients' models.
        byzantine: f, how many may lie.

    Raises:
        PartError: bad_option (f negative, or m below 2 f + 3).
    """
    clients = len(distances)
    if byzantine < 0 or clients < 2 * byzantine + 3:
        raise PartError(
            "bad_option",
            f"Krum against {byzantine} liars needs {2 * byzantine + 3} clients, not {clients}; "
            "lower fuse.byzantine, or let rounds.min_updates wait for more",
        )
    others = np.sort(distances + np.diag(np.full(clients, np.inf)), axis=1)
    scores = others[:, : clients - byzantine - 2].sum(axis=1)
    return [int(index) for index in np.argsort(scores, kind="stable")]


def best(order: Sequence[int], keep: int) -> list[int]:
    """Return the `keep` first of an order, ascending; keep = 1 is Krum itself, more are Multi-Krum.

    Raises:
        PartError: bad_option (keep outside 1 to m).
    """
    if not 1 <= keep <= len(order):
        raise PartError("bad_option", f"{keep} models are to be kept of {len(order)}; lower fuse.keep")
    return sorted(order[:keep])


def clip_factors(norms: Norms, max_norm: float) -> Float:
    """Return min(1, max_norm / norm) [m] for the clients' distances [m] from the round's model; 1 for a distance of 0.

    Raises:
        PartError: bad_option (max_norm not positive), non_finite.
    """
    option("the largest norm", max_norm, open_low=True)
    if not norms.finite:
        raise PartError("non_finite", "distances from the round's model: one is too large for a number.")
    return norms.shares(max_norm)


def clipped_mean(previous: Float, values: Float, parts: Float) -> Float:
    """Return w + sum_k p_k f_k (w_k - w) [n].

    Args:
        previous: w [n], of the round's model.
        values: w_k [m, n].
        parts: p_k f_k [m], p_k = n_k / sum n and f_k as `clip_factors` gives it.
    """
    return np.asarray(previous + np.tensordot(parts, values - previous, axes=1))


# --------------------------------------------------------------------------------------------------------------- files
def _lower_median(values: Sequence[Array]) -> Array:
    return largest_but(values, len(values) // 2)


def median_files(sources: Sequence[Source], output: Path, base: Header | None = None) -> list[str]:
    """Write the coordinate median of the sources with n_k > 0 and return who they are; integers take the lower median.

    Raises:
        PartError: bad_weight, no_positive_weight, schema_mismatch, non_finite.
    """
    given = ordered(sources)
    reduce_files(named(given), output, lambda block, values: median(values), base, _lower_median)
    return [source.name for source in given]


def trimmed_mean_files(
    sources: Sequence[Source], output: Path, trim: float = 0.1, base: Header | None = None
) -> list[str]:
    """Write the trimmed mean of the sources with n_k > 0 and return who they are; of integers the largest that is left.

    Raises:
        PartError: as `median_files`; bad_option.
    """
    given = ordered(sources)
    cut = trimmed_count(len(given), trim)
    left = partial(largest_but, cut=cut)
    reduce_files(named(given), output, lambda block, values: trimmed_mean(values, cut), base, left)
    return [source.name for source in given]


@dataclass(frozen=True)
class Chosen:
    """Whom Krum took, and the order of all by score, best first."""

    kept: list[str]
    order: list[str]


def krum_files(
    sources: Sequence[Source], output: Path, byzantine: int = 1, keep: int = 1, base: Header | None = None
) -> Chosen:
    """Write the plain mean of the `keep` best models by Krum, and the median of everybody's buffers.

    Args:
        sources: those with n_k = 0 are not read.
        output: file to make.
        byzantine: f.
        keep: models averaged; 1 is Krum.
        base: the tensors; those of the first file by default.

    Raises:
        PartError: as `median_files`; bad_option (m below 2 f + 3, keep outside 1 to m).
    """
    given = ordered(sources)
    header = header_of(given[0].path) if base is None else base
    order = krum_order(squared_distances(_gram(given, header)), byzantine)
    kept = best(order, keep)

    def rule(block: Block, values: Float) -> Float:
        return np.asarray(values[kept].mean(axis=0)) if block.parameter else median(values)

    reduce_files(named(given), output, rule, header, _lower_median)
    return Chosen([given[index].name for index in kept], [given[index].name for index in order])


def _gram(sources: Sequence[Source], header: Header) -> Float:
    """Return the Gram matrix [m, m] of the parameters about their median."""
    gram = np.zeros((len(sources), len(sources)))
    with Readers(named(sources), header) as readers:
        for block in blocks(header, len(sources), frozenset(parameters(header)).__contains__):
            with np.errstate(invalid="ignore", over="ignore"):
                gram += centred_gram(readers.floats(block))
    return gram


def clipped_mean_files(sources: Sequence[Source], previous: Path, output: Path, max_norm: float) -> dict[str, float]:
    """Write the n_k mean of updates clipped to a norm and return the clients' norms ||w_k - w|| over the parameters.

    Buffers take the median.

    Args:
        sources: files and n_k.
        previous: file of the round's model w; its metadata names the buffers.
        output: file to make.
        max_norm: largest norm.

    Raises:
        PartError: as `median_files`; bad_option (max_norm not positive).
    """
    option("the largest norm", max_norm, open_low=True)
    given, base = ordered(sources), header_of(previous)
    parts = np.asarray(shares([source.weight for source in given]))
    norms = Norms(len(given))
    with (
        Readers(named(given), base) as updates,
        Readers([("the model", previous)], base) as old,
        model_writer(output, base) as writer,
    ):
        with np.errstate(over="ignore"):  # a distance that is no number is refused below
            for block in blocks(base, len(given) + 1, frozenset(parameters(base)).__contains__):
                norms.add(updates.floats(block) - old.floats(block)[0])
        clipped = parts * clip_factors(norms, max_norm)
        for block in blocks(base, len(given) + 1):
            if not block.floating:
                writer.write(block.name, _lower_median(updates.raw(block)))
                continue
            values = updates.floats(block)
            if block.parameter:
                result = clipped_mean(old.floats(block)[0], values, clipped)
            else:
                result = median(values)
            writer.write(block.name, narrow(block.name, result, block.dtype))
    return {source.name: float(norm) for source, norm in zip(given, norms.values(), strict=True)}
