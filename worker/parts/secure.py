"""Sums of masked updates (Bonawitz et al. 2017): secrets are put together from shares, masks taken off, means read.

The sum is exact modulo 2^32 or 2^64, so neither the order of the files nor who revealed changes a byte.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path

import numpy as np

from contract.errors import RuleError
from contract.secure import primitives, shamir
from contract.secure.fixed import FixedPoint, residues
from contract.secure.graph import Graph, build
from contract.secure.masks import Mask, Masks, commitment, pair_seed, sign_of
from contract.tensors import Array
from worker.parts.blocks import Readers, Source, blocks, header_of, model_writer, narrow
from worker.parts.errors import PartError

_TRIES = 2000
"""Sets of shares that are tried where one of them is false."""


@dataclass(frozen=True)
class Group:
    """What is known of a group's session, names throughout; keys and shares are bytes.

    Attributes:
        session: its name, to which seeds are bound.
        threshold: of the plan.
        mask_keys: who advertised -> its public mask key.
        commitments: who advertised -> SHA-256 of its self mask's seed.
        members: who shared secrets.
        survivors: whose updates are added up.
        seeds: revealer -> survivor -> share of the seed of its self mask.
        keys: revealer -> who dropped out -> share of its private mask key.
    """

    session: str
    threshold: float
    mask_keys: Mapping[str, bytes]
    commitments: Mapping[str, bytes]
    members: Sequence[str]
    survivors: Sequence[str]
    seeds: Mapping[str, Mapping[str, bytes]]
    keys: Mapping[str, Mapping[str, bytes]]


# -------------------------------------------------------------------------------------------------------------- secrets
def recover(group: Group) -> list[Mask]:
    """Return what must be added to the sum over the survivors, so that no mask is left in it.

    Raises:
        PartError: too_few_shares, bad_share; naming whose secret it is.
    """
    graph, here = build(group.mask_keys, group.threshold), sorted(group.survivors)
    found = []
    for name in here:
        found.append(Mask(_secret(graph, name, group.seeds, commitment, group.commitments[name]), -1))
    for lost in sorted(set(group.members) - set(here)):
        around = [name for name in graph.adjacent[lost] if name in here]
        if around:
            private = _secret(graph, lost, group.keys, primitives.public, group.mask_keys[lost])
            for name in around:
                seed = pair_seed(private, group.mask_keys[name], group.session, lost, name)
                found.append(Mask(seed, -sign_of(name, lost)))
    return found


def _secret(
    graph: Graph,
    owner: str,
    told: Mapping[str, Mapping[str, bytes]],
    seen_as: Callable[[bytes], bytes],
    public: bytes,
) -> bytes:
    """Return the secret that is seen as what its owner made public; false shares among many are left out."""
    holders, needed = graph.holders(owner), graph.threshold(owner)
    shares = {graph.point(who): told[who][owner] for who in holders if owner in told.get(who, {})}
    if len(shares) < needed:
        raise PartError("too_few_shares", f"{len(shares)} of {needed} shares of the secret of {owner!r} were revealed")
    for points in islice(combinations(sorted(shares), needed), _TRIES):
        try:
            secret = shamir.combine({point: shares[point] for point in points}, needed)
        except RuleError:
            continue
        if seen_as(secret) == public:
            return secret
    raise PartError("bad_share", f"the shares of the secret of {owner!r} are false; no set of them gives it")


# ----------------------------------------------------------------------------------------------------------------- sums
def sum_files(
    sources: Sequence[Source],
    base: Path,
    output: Path,
    fixed: FixedPoint,
    masks: "Sequence[Mask] | None" = None,
    on_block: Callable[[], None] = lambda: None,
) -> None:
    """Write the mean that updates sum up to; any order of the sources gives the same bytes.

    Args:
        sources: the clients' files with their weights n_k: residues with the model's names and shapes, n_k in them
            already; where `masks` is None, plain updates, which are encoded here as devices would.
        base: the model that was sent.
        output: the file to make, with the model's dtypes.
        fixed: how residues are read.
        masks: what `recover` says.
        on_block: called before each block; what it raises ends the job.

    Raises:
        PartError: schema_mismatch, bad_weight, non_finite; naming the tensor.
    """
    header, weight = header_of(base), sum(int(source.weight) for source in sources)
    files = [(source.name, source.path) for source in sources]
    left = _nothing(fixed) if masks is None else Masks(masks, fixed).next
    with (
        Readers([("the round's model", base)], header) as sent,
        Readers(files, header if masks is None else residues(header, fixed), exactly=True) as readers,
        model_writer(output, header) as writer,
    ):
        for block in blocks(header, len(files) + 2):
            on_block()
            start, total = sent.raw(block)[0], left(block.count)
            try:
                for source, values in zip(sources, readers.raw(block), strict=True):
                    part = fixed.encode(values, start, int(source.weight)) if masks is None else values
                    total = total + part.view(fixed.residues)
                mean = fixed.decode(total, start, weight, block.dtype)
            except RuleError as error:
                raise PartError(error.code, f"tensor {block.name!r}: {error.detail}") from error
            writer.write(block.name, narrow(block.name, mean, block.dtype) if block.floating else mean)


def _nothing(fixed: FixedPoint) -> Callable[[int], Array]:
    return lambda count: np.zeros(count, fixed.residues)
