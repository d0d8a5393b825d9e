"""The rules of `posterior` on files, block by block; a member is made anew whenever it is needed.

Files: the mean is a whole model; the variance has the floating tensors in float32; the floor has the running variances'
least values over the clients. Names of running variances end in ``running_var``.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from contract.tensors import FLOATS, Header, TensorWriter
from worker.parts.arrays import Float, option
from worker.parts.blocks import (
    Block,
    Readers,
    Source,
    blocks,
    header_of,
    like,
    model_writer,
    narrow,
    reduce_files,
)
from worker.parts.fuse import average_files, named, ordered, shares
from worker.parts.posterior import (
    coefficients,
    draw_log_gamma,
    draws,
    gaussian_sample,
    swag_moments,
    swag_sample,
    weighted_mean,
    weighted_variance,
)


def _floating(header: Header) -> dict[str, str]:
    return {name: name for name, info in header.tensors.items() if info.dtype in FLOATS}


def _is_variance(name: str) -> bool:
    return name.rpartition(".")[2] == "running_var"


def posterior_files(
    sources: Sequence[Source], mean: Path, var: Path, floor: Path, base: Header | None = None
) -> list[str]:
    """Write the Gaussian posterior of the sources' models and return who contributed (FedBE eq. 5, two passes).

    Args:
        sources: files and n_i; those with n_i = 0 are not read.
        mean: file to make: a model; integers are the maximum.
        var: file to make: the variance of every floating tensor, float32.
        floor: file to make: the least value over the clients of every running variance, float32.
        base: the tensors; those of the first file by default.

    Raises:
        PartError: bad_weight, no_positive_weight, schema_mismatch, non_finite.
    """
    given = ordered(sources)
    parts = np.asarray(shares([source.weight for source in given]))
    header = header_of(given[0].path) if base is None else base
    reduce_files(named(given), mean, lambda block, values: weighted_mean(parts, values), header)
    variances = {name: name for name in _floating(header) if _is_variance(name)}
    outputs = [(var, like(header, _floating(header), "F32")), (floor, like(header, variances, "F32"))]
    with Readers(named(given), header) as readers:
        for path, infos in outputs:
            with TensorWriter(path, infos) as writer:
                for block in blocks(header, len(given), infos.__contains__):
                    values = readers.floats(block)
                    # the mean as it was before it was rounded to the model's dtype
                    second = weighted_variance(parts, values, weighted_mean(parts, values))
                    result = second if path is var else values.min(axis=0)
                    writer.write(block.name, narrow(block.name, result, "F32"))
    return [source.name for source in given]


def gaussian_sample_files(
    mean: Path,
    var: Path,
    floor: Path,
    output: Path,
    *,
    seed: int,
    round_index: int,
    member: int,
    scale: float = 0.1,
    sample_buffers: bool = True,
) -> None:
    """Write one member of the Gaussian posterior (FedBE eq. 5 at scale 1; App. B.1: BatchNorm is sampled as well).

    Args:
        mean: made by `posterior_files`.
        var: likewise.
        floor: likewise; a sampled running variance is at least this.
        output: file to make.
        seed: the federation's.
        round_index: the round.
        member: the sample's index.
        scale: times the standard deviation.
        sample_buffers: sample floating buffers as well; otherwise they are the mean's.

    Raises:
        PartError: bad_option, schema_mismatch, non_finite.
    """
    option("the scale of a sample", scale)
    base = header_of(mean)
    spread, least = header_of(var), header_of(floor)
    with (
        Readers([("the mean", mean)], base) as means,
        Readers([("the variance", var)], spread) as variances,
        Readers([("the floor", floor)], least) as floors,
        model_writer(output, base) as writer,
    ):
        streams: dict[str, np.random.Generator] = {}
        for block in blocks(base, 8):
            if not block.floating or not (block.parameter or sample_buffers):
                writer.write(block.name, means.raw(block)[0])
                continue
            random = streams.setdefault(block.name, draws(seed, round_index, member, block.name))
            noise = random.standard_normal(block.count)
            lowest = floors.floats(block)[0] if _is_variance(block.name) else None
            sample = gaussian_sample(means.floats(block)[0], variances.floats(block)[0], noise, scale, lowest)
            writer.write(block.name, narrow(block.name, sample, block.dtype))


def dirichlet_sample_files(
    sources: Sequence[Source],
    output: Path,
    *,
    seed: int,
    round_index: int,
    member: int,
    alpha: float = 0.5,
    sample_buffers: bool = True,
    base: Header | None = None,
) -> Float:
    """Write one Dirichlet member, a convex combination of the sources, and return its coefficients (FedBE eq. 6 and 7).

    Args:
        sources: files and n_i.
        output: file to make.
        seed: the federation's.
        round_index: the round.
        member: the sample's index.
        alpha: concentration; FedBE Table 7 found 0.5 or 1 best.
        sample_buffers: combine floating buffers with the same coefficients; otherwise they are the n_i average.
        base: the tensors; those of the first file by default.

    Returns:
        coefficients [m], in the order of the contributors' names.

    Raises:
        PartError: as `average_files`; bad_option (alpha).
    """
    given = ordered(sources)
    logs = draw_log_gamma(seed, round_index, member, [source.name for source in given], alpha)
    parts = coefficients([source.weight for source in given], logs)
    if sample_buffers:
        drawn = [replace(source, weight=float(part)) for source, part in zip(given, parts, strict=True)]
        average_files(drawn, output, base=base)
        return parts
    by_samples = np.asarray(shares([source.weight for source in given]))

    def rule(block: Block, values: Float) -> Float:
        return weighted_mean(parts if block.parameter else by_samples, values)

    reduce_files(named(given), output, rule, base)
    return parts


def swag_sample_files(
    sources: Sequence[Source],
    output: Path,
    *,
    seed: int,
    round_index: int,
    member: int,
    scale: float = 1.0,
    sample_buffers: bool = True,
    base: Header | None = None,
) -> None:
    """Write one SWAG member over the sources, uniform weights, in the order of their names (FedDF Table 7).

    A sampled running variance is at least the least of the sources'. Arguments as `dirichlet_sample_files`; scale as
    `swag_sample`.

    Raises:
        PartError: bad_option, bad_weight, no_positive_weight, schema_mismatch, non_finite.
    """
    option("the scale of a sample", scale)
    given = ordered(sources)
    low_rank = draws(seed, round_index, member, "low rank").standard_normal(len(given))
    streams: dict[str, np.random.Generator] = {}

    def rule(block: Block, values: Float) -> Float:
        if not (block.parameter or sample_buffers):
            return np.asarray(values.mean(axis=0))
        random = streams.setdefault(block.name, draws(seed, round_index, member, f"tensor {block.name}"))
        sample = swag_sample(swag_moments(values), random.standard_normal(block.count), low_rank, scale)
        return np.maximum(sample, values.min(axis=0)) if _is_variance(block.name) else sample

    reduce_files(named(given), output, rule, base)
