"""How often a device sends samples through a network in a round, for an estimate of what that costs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Passes:
    """Passes over a device's own samples, and over a public set, with gradients and without.

    Attributes:
        training: forward and backward over the device's own samples; epochs may be broken.
        forward: forward alone over them.
        public_training: forward and backward over the public set.
        public_forward: forward alone over it.
    """

    training: float
    forward: float = 0.0
    public_training: float = 0.0
    public_forward: float = 0.0

    def flops(self, forward: int, training: int, samples: int, public: int) -> int:
        """Return operations, given those of a sample's passes and the numbers of samples."""
        own = self.training * training + self.forward * forward
        shared = self.public_training * training + self.public_forward * forward
        return round(own * samples + shared * public)
