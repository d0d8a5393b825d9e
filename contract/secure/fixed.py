"""Numbers that can be added exactly: fixed point, multiplied by a weight, modulo 2^32 or 2^64.

What is masked is the change of each value against the model that was sent, theta_k - theta. Symbols: c the clip, b the
bits of a value, L = 2^(b-1) - 1 its largest level, M = 2^m the modulus, n_k weights (whole numbers), N their sum.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from contract.errors import RuleError
from contract.tensors import DTYPES, FLOATS, Array, Header, TensorInfo

_CONTAINERS = {32: "I32", 64: "I64"}


@dataclass(frozen=True)
class FixedPoint:
    """How values become whole numbers and sums of them values again.

    q_k = round(clamp(theta_k - theta, -c, c) L / c), x_k = n_k q_k mod M, and of S = sum_k x_k mod M, read as a signed
    number, mean = theta + (S / N) (c / L). As |S| <= N L < M / 2, S is the sum of the n_k q_k itself: the sum is exact,
    whatever the order. The mean is within c / (2 L) of the plain one, plus the rounding to the tensor's dtype, as
    long as no change is beyond the clip.

    Integers (counters) are their own levels, at most L away from what was sent: their mean is that of the changes,
    rounded half to even; of bools, what the heavier half says.

    Attributes:
        clip: c > 0; what is beyond counts as the clip.
        bits: b, 8 to 32.
        modulus_bits: m, 32 or 64.
    """

    clip: float
    bits: int = 32
    modulus_bits: int = 64

    @property
    def levels(self) -> int:
        """L, the largest level."""
        return (1 << (self.bits - 1)) - 1

    @property
    def step(self) -> float:
        """c / L: what one level is worth."""
        return self.clip / self.levels

    @property
    def most_weight(self) -> int:
        """The largest sum of weights N whose sums cannot overflow: N L < M / 2."""
        return ((1 << (self.modulus_bits - 1)) - 1) // self.levels

    @property
    def container(self) -> str:
        """The dtype that carries residues modulo M, by its name in a file; the sign bit is one like the others."""
        return _CONTAINERS[self.modulus_bits]

    @property
    def residues(self) -> np.dtype[Any]:
        """The dtype in which residues are added: unsigned numbers wrap by themselves."""
        return np.dtype(f"<u{self.modulus_bits // 8}")

    def encode(self, values: Array, base: Array, weight: int) -> Array:
        """Return x_k [n], residues.

        Args:
            values: theta_k [n], finite, in the tensor's dtype.
            base: theta [n], in the same dtype.
            weight: n_k >= 0.

        Raises:
            RuleError: non_finite; bad_weight, when the weight alone could overflow.
        """
        if not 0 <= weight <= self.most_weight:
            raise RuleError("bad_weight", f"{weight} samples do not fit the modulus; at most {self.most_weight} do")
        levels = self._float_levels(values, base) if _is_float(values) else self._integer_levels(values, base)
        return (levels.astype(np.uint64) * np.uint64(weight)).astype(self.residues)

    def clipped(self, values: Array, base: Array) -> int:
        """Return how many values [n] are beyond the clip."""
        if not _is_float(values):
            return 0
        return int(np.count_nonzero(np.abs(values.astype(np.float64) - base.astype(np.float64)) > self.clip))

    def decode(self, total: Array, base: Array, weight: int, dtype: str) -> Array:
        """Return the mean [n] in the tensor's dtype.

        Args:
            total: S [n], residues.
            base: theta [n].
            weight: N > 0.
            dtype: of the tensor, by its name in a file.

        Raises:
            RuleError: bad_weight, when N is 0 or sums of such weights can have overflowed.
        """
        if not 0 < weight <= self.most_weight:
            raise RuleError("bad_weight", f"weights sum to {weight}; they must be between 1 and {self.most_weight}")
        signed = total.astype(self.residues).view(f"<i{self.modulus_bits // 8}").astype(np.int64)
        if dtype in FLOATS:
            with np.errstate(over="ignore"):  # whoever writes the result looks for what does not fit
                wide = base.astype(np.float64) + (signed.astype(np.float64) / weight) * self.step
                return np.asarray(wide.astype(DTYPES[dtype]))
        change = rounded_quotient(signed, weight)
        if dtype == "BOOL":
            return np.asarray((base.astype(np.int64) + change) > 0)
        start, limits = base.astype(np.int64), np.iinfo(DTYPES[dtype])
        mean = start + change
        mean = np.where((change > 0) & (mean < start), limits.max, mean)  # a liar's sum may wrap
        mean = np.where((change < 0) & (mean > start), limits.min, mean)
        return np.asarray(np.clip(mean, limits.min, limits.max).astype(DTYPES[dtype]))

    def _float_levels(self, values: Array, base: Array) -> Array:
        change = values.astype(np.float64) - base.astype(np.float64)
        if not np.isfinite(change).all():
            raise RuleError("non_finite", "NaN or infinity")
        levels: Array = np.rint(np.clip(change, -self.clip, self.clip) * (self.levels / self.clip))
        return np.clip(levels, -self.levels, self.levels).astype(np.int64)

    def _integer_levels(self, values: Array, base: Array) -> Array:
        start = base.astype(np.int64)
        low, high = start - self.levels, start + self.levels
        with np.errstate(over="ignore"):
            low, high = np.where(low > start, -(1 << 63), low), np.where(high < start, (1 << 63) - 1, high)
        return np.clip(values.astype(np.int64), low, high) - start


def residues(base: Header, fixed: FixedPoint) -> Header:
    """Return the header that a masked update's tensors must match."""
    tensors, end, dtype = {}, 0, fixed.container
    for name, info in base.tensors.items():
        begin, end = end, end + info.numel * DTYPES[dtype].itemsize
        tensors[name] = TensorInfo(dtype, info.shape, begin, end)
    return Header(tensors, base.metadata)


def rounded_quotient(numerators: Array, denominator: int) -> Array:
    """Return numerators / denominator [n] in whole numbers, rounded half to even, without passing through floats."""
    floor, rest = np.divmod(numerators, np.int64(denominator))
    other = np.int64(denominator) - rest  # compared like this, nothing is doubled and nothing overflows
    up = (rest > other) | ((rest == other) & (floor % 2 == 1))
    return np.asarray(floor + up)


def _is_float(values: Array) -> bool:
    return values.dtype.kind not in "biu"
