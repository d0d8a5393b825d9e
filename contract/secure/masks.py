"""Masks: what hides an update, block by block, and what takes them off a sum. numpy, memory of one block.

y_u = x_u + PRG(b_u) + sum_{v in N(u), u < v} PRG(s_uv) - sum_{v in N(u), u > v} PRG(s_uv)  (mod M), names compared as
texts (Bonawitz et al. 2017, section 4). In the sum over the survivors the pairwise masks of two survivors cancel.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contract.secure.fixed import FixedPoint
from contract.secure.primitives import Stream, agree
from contract.tensors import Array


@dataclass(frozen=True)
class Mask:
    """The seed of one mask, and its sign: 1 or -1."""

    seed: bytes
    sign: int


class Masks:
    """Several masks that are added up while they are read, in the order of the values that they hide."""

    def __init__(self, masks: Sequence[Mask], fixed: FixedPoint):
        self._streams = [(Stream(mask.seed), mask.sign) for mask in masks]
        self._dtype = fixed.residues

    def next(self, count: int) -> Array:
        """Return the sum of the masks of the next values, residues [count]."""
        total = np.zeros(count, self._dtype)
        for stream, sign in self._streams:
            piece = np.frombuffer(stream.read(count * self._dtype.itemsize), self._dtype)
            total = total + piece if sign > 0 else total - piece
        return total


def sign_of(own: str, other: str) -> int:
    """Return the sign with which a device adds the mask that it shares with another."""
    return 1 if own < other else -1


def pair_seed(private: bytes, public: bytes, session: str, own: str, other: str) -> bytes:
    """Return s_uv: what two devices' mask keys give, the same from both ends.

    Raises:
        RuleError: bad_key.
    """
    first, second = sorted((own, other))
    return agree(private, public, purpose("mask", session, first, second))


def commitment(seed: bytes) -> bytes:
    """Return what a device commits itself to: SHA-256 of its self mask's seed."""
    return hashlib.sha256(seed).digest()


def purpose(what: str, *parts: str) -> bytes:
    """Return an unambiguous name of what something is for: each part with its length before it."""
    pieces = [part.encode() for part in ("potstill secure aggregation 1", what, *parts)]
    return b"".join(len(piece).to_bytes(4, "big") + piece for piece in pieces)
