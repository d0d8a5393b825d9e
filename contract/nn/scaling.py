"""How images meet a generator: the range of the unlabelled server set is mapped to [-1, 1] on both ends."""

from torch import Tensor


def to_signed_unit(x: Tensor, input_range: tuple[float, float]) -> Tensor:
    """Map values from [lo, hi] to [-1, 1] (FedGO E.2: images scaled to the tanh's range); outside is not clipped.

    Raises:
        ValueError: hi is not above lo.
    """
    low, high = input_range
    if not high > low:
        raise ValueError(f"input_range [{low}, {high}]: the upper end must be above the lower one")
    return (x - low) * (2.0 / (high - low)) - 1.0
