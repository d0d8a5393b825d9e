"""The digits of scikit-learn, split as experiment D1 wants them: a few real images, no download.

The 1,797 images of 8 x 8 pixels are the test set of UCI's hand-written digits data set; scikit-learn carries them.
"""

from dataclasses import dataclass

import numpy as np

from contract.seeds import derive_seed
from potstill.samples import Labels, Samples

CLASSES = 10
SHAPE = (1, 8, 8)


@dataclass(frozen=True)
class Split:
    """Everybody's data."""

    test: Samples
    server: Samples
    clients: list[Samples]


def load() -> Samples:
    """Return all 1,797 images, pixel values scaled from 0..16 to 0..1."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    inputs = (digits.images / 16.0).astype(np.float32).reshape(-1, *SHAPE)
    return Samples(inputs, digits.target.astype(np.int64))


def three_ways(labels: Labels, generator: np.random.Generator) -> tuple[list[int], list[int], list[int]]:
    """Split indices class by class into test, server and clients.

    Of a class's n images, floor(0.2 n) are for the test; half of the rest (floor) go to the server, the others to the
    clients.
    """
    test: list[int] = []
    server: list[int] = []
    clients: list[int] = []
    for label in range(CLASSES):
        indices = generator.permutation(np.flatnonzero(labels == label)).tolist()
        first = len(indices) // 5
        second = first + (len(indices) - first) // 2
        test += indices[:first]
        server += indices[first:second]
        clients += indices[second:]
    return test, server, clients


def dirichlet_shares(
    labels: Labels, clients: int, alpha: float, generator: np.random.Generator, smallest: int = 10
) -> list[list[int]]:
    """Deal samples to clients: each class by its own draw from Dirichlet(alpha) over the clients, sizes as they fall.

    Small `alpha` gives most of a class to one client. Drawn again until every client has `smallest` samples.

    Returns:
        For each client the positions in `labels` that it gets; a partition.

    Raises:
        ValueError: there are fewer than clients x smallest samples.
    """
    if len(labels) < clients * smallest:
        raise ValueError(f"{len(labels)} samples cannot give {smallest} to each of {clients} clients")
    while True:
        shares: list[list[int]] = [[] for _ in range(clients)]
        for label in np.unique(labels):
            indices = generator.permutation(np.flatnonzero(labels == label))
            cuts = (np.cumsum(generator.dirichlet([alpha] * clients))[:-1] * len(indices)).astype(int)
            for share, piece in zip(shares, np.split(indices, cuts), strict=True):
                share.extend(piece.tolist())
        if min(map(len, shares)) >= smallest:
            return shares


def split(seed: int, clients: int = 10, alpha: float = 0.1) -> Split:
    """Return D1's split for a seed: 355 test, 719 server and 723 client images."""
    everything = load()
    generator = np.random.default_rng(derive_seed(seed, "digits", "split"))
    test, server, rest = three_ways(everything.labels, generator)

    pool = everything.take(rest)
    shares = dirichlet_shares(pool.labels, clients, alpha, generator)
    return Split(everything.take(test), everything.take(server), [pool.take(share) for share in shares])
