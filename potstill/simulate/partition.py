"""Who holds what: a pool of labelled samples dealt to clients, in the ways of the papers. All are seeded partitions."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from potstill.samples import Labels, Users
from potstill.simulate.config import SimulationError

Shares = list[list[int]]
"""For each client the positions in the pool that it gets."""

REDRAWS = 200


def iid(labels: Labels, clients: int, generator: np.random.Generator) -> Shares:
    """Deal samples at random, sizes as even as can be.

    Raises:
        SimulationError: there are fewer samples than clients.
    """
    _enough(labels, clients, 1)
    return [sorted(share.tolist()) for share in np.array_split(generator.permutation(len(labels)), clients)]


def dirichlet(labels: Labels, clients: int, alpha: float, generator: np.random.Generator, smallest: int = 10) -> Shares:
    """Deal each class by its own draw from Dirichlet(alpha) over the clients, sizes as they fall (FedBE 5.1, FedGO).

    Small `alpha` gives most of a class to one client. Drawn again until every client has `smallest` samples; where that
    does not happen in 200 draws, the last one is topped up: samples move, at random, from who has most at the time.

    Raises:
        SimulationError: there are fewer than clients x smallest samples, or alpha is not positive.
    """
    _enough(labels, clients, smallest)
    _positive(alpha)
    shares: Shares = []
    for _ in range(REDRAWS):
        shares = [[] for _ in range(clients)]
        for label in np.unique(labels):
            _deal(
                shares, generator.permutation(np.flatnonzero(labels == label)), generator.dirichlet([alpha] * clients)
            )
        if min(map(len, shares)) >= smallest:
            break
    _top_up(shares, smallest, generator)
    return [sorted(share) for share in shares]


def dirichlet_balanced(labels: Labels, clients: int, alpha: float, generator: np.random.Generator) -> Shares:
    """Deal as FedDF's code does: even sizes, within blocks of 10 clients.

    A client that has its even share of the block gets nothing of later classes; drawn again until the smallest has half
    of it.

    Raises:
        SimulationError: too few samples, alpha not positive, or no such draw in 200.
    """
    _enough(labels, clients, 2)
    _positive(alpha)
    order = generator.permutation(len(labels))
    sizes = [min(10, clients - start) for start in range(0, clients, 10)]
    cuts = [len(order) * done // clients for done in np.cumsum(sizes)[:-1]]
    shares: Shares = []
    for block, size in zip(np.split(order, cuts), sizes, strict=True):
        shares += _balanced_block(labels, block, size, alpha, generator)
    return shares


def _balanced_block(
    labels: Labels, block: NDArray[np.int64], clients: int, alpha: float, generator: np.random.Generator
) -> Shares:
    even = len(block) / clients
    for _ in range(REDRAWS):
        shares: Shares = [[] for _ in range(clients)]
        for label in np.unique(labels):
            open_ = np.array([len(share) < even for share in shares])
            weights = generator.dirichlet([alpha] * clients) * open_
            if weights.sum() <= 0:  # every open client drew a weight that is zero in floating point
                weights = open_.astype(float) if open_.any() else np.ones(clients)
            _deal(shares, block[labels[block] == label], weights / weights.sum())
        if min(map(len, shares)) >= int(0.5 * even):
            return [sorted(share) for share in shares]
    raise SimulationError(
        f"partition: no balanced draw of {clients} clients in {REDRAWS} tries with alpha {alpha:g}; take a larger "
        "alpha or leave out --balanced"
    )


def step(labels: Labels, clients: int, generator: np.random.Generator, major: int = 2, minor: int = 10) -> Shares:
    """Give each client many images of `major` classes and `minor` of every other one (FedBE 5.1, "Step").

    Major classes go round the clients in turn. Of a class with n images, minor shares take n / (2 clients) each at
    most, so that something is left; the rest is dealt evenly to those whose major it is, or to all if it is nobody's.

    Raises:
        SimulationError: too few samples, or `major` is not between 1 and the number of classes.
    """
    _enough(labels, clients, 1)
    classes = np.unique(labels)
    if not 1 <= major <= len(classes):
        raise SimulationError(f"major: {major} is not between 1 and the number of classes, {len(classes)}")
    owners: dict[int, list[int]] = {int(label): [] for label in classes}
    for turn in range(clients * major):
        owners[int(classes[turn % len(classes)])].append(turn // major)
    shares: Shares = [[] for _ in range(clients)]
    for label, mine in owners.items():
        indices = generator.permutation(np.flatnonzero(labels == label))
        others = [client for client in range(clients) if client not in mine]
        few = min(minor, len(indices) // (2 * clients))
        for at, client in enumerate(others):
            shares[client] += indices[at * few : (at + 1) * few].tolist()
        rest = indices[few * len(others) :]
        for client, piece in zip(mine or range(clients), np.array_split(rest, len(mine) or clients), strict=True):
            shares[client] += piece.tolist()
    return [sorted(share) for share in shares]


def by_user(users: Users, clients: int, generator: np.random.Generator, smallest: int = 10) -> Shares:
    """Give each client all samples of one user (LEAF, Caldas et al. 2018).

    Users with fewer than `smallest` samples are left out, and of the others as many as there are clients are drawn at
    random; clients have them in the order of the users.

    Raises:
        SimulationError: there are fewer such users than clients.
    """
    known, counts_ = np.unique(users, return_counts=True)
    enough = np.flatnonzero(counts_ >= smallest)
    if len(enough) < clients:
        raise SimulationError(
            f"clients: {len(enough)} of {len(known)} users have {smallest} samples or more, {clients} are asked for; "
            "take fewer clients, or set `smallest`"
        )
    chosen = np.sort(generator.permutation(enough)[:clients])
    return [np.flatnonzero(users == known[number]).tolist() for number in chosen]


def counts(labels: Labels, shares: Shares, classes: int) -> NDArray[np.int64]:
    """Return how many samples of each class each client has, [clients, classes]."""
    return np.stack([np.bincount(labels[share], minlength=classes) for share in shares])


def stratified(labels: Labels, sizes: Sequence[int], generator: np.random.Generator) -> list[list[int]]:
    """Return disjoint subsets of these sizes, each with the classes in the pool's proportions; the rest comes last.

    Raises:
        SimulationError: the sizes are more than there is.
    """
    if sum(sizes) > len(labels):
        raise SimulationError(f"{sum(sizes)} samples are asked for, there are {len(labels)}; ask for fewer")
    pools = {int(label): generator.permutation(np.flatnonzero(labels == label)).tolist() for label in np.unique(labels)}
    subsets = []
    for size in sizes:
        take = _proportional(size, {label: len(pool) for label, pool in pools.items()})
        subsets.append(sorted(pools[label].pop() for label, count in take.items() for _ in range(count)))
    return [*subsets, sorted(index for pool in pools.values() for index in pool)]


def _proportional(size: int, available: dict[int, int]) -> dict[int, int]:
    """Return how many to take of each class, `size` in all; what rounding leaves goes to the largest remainders."""
    total = sum(available.values())
    exact = {label: size * count / max(total, 1) for label, count in available.items()}
    take = {label: int(share) for label, share in exact.items()}
    late = sorted(exact, key=lambda label: (take[label] - exact[label], label))
    for label in late[: size - sum(take.values())]:
        take[label] += 1
    return take


def _deal(shares: Shares, indices: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
    cuts = (np.cumsum(weights)[:-1] * len(indices)).astype(int)
    for share, piece in zip(shares, np.split(indices, cuts), strict=True):
        share.extend(piece.tolist())


def _top_up(shares: Shares, smallest: int, generator: np.random.Generator) -> None:
    for share in shares:
        while len(share) < smallest:
            richest = max(shares, key=len)
            share.append(richest.pop(int(generator.integers(len(richest)))))


def _enough(labels: Labels, clients: int, smallest: int) -> None:
    if len(labels) < clients * smallest:
        raise SimulationError(
            f"clients: {len(labels)} samples cannot give {smallest} to each of {clients}; take fewer clients"
        )


def _positive(alpha: float) -> None:
    if not (alpha > 0 and math.isfinite(alpha)):
        raise SimulationError(f"alpha: {alpha:g} is not a positive number")
