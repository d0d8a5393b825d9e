"""What an update counts in the sum of a secure round: the one rule of the service, its workers and devices."""

from contract.recipes.parts.averaging import FuseChoice


def is_weighted(fuse: FuseChoice) -> bool:
    """Return whether an update counts by its samples; else it counts once."""
    return fuse.sums == "samples"


def weight_of(num_samples: int, weighted: bool) -> int:
    """Return n_k of an update in the sum: its samples, or one."""
    return num_samples if weighted else 1
