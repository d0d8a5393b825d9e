"""Slow secure aggregation's arithmetic: Python's unbounded integers, one value at a time; ChaCha20 and HKDF by the
letters of their RFCs.
"""

import hashlib
import hmac
import struct
from fractions import Fraction


def encode(value: float, base: float, weight: int, clip: float, bits: int, modulus: int) -> int:
    """x = n round(clamp(v - base) L / c) mod M."""
    levels = 2 ** (bits - 1) - 1
    change = min(max(value - base, -clip), clip)
    return int(weight * max(min(round(change * (levels / clip)), levels), -levels) % modulus)


def decode(total: int, base: float, weight: int, clip: float, bits: int, modulus: int) -> float:
    """base + (S / N) (c / L), S the signed reading of the residue."""
    levels = int(2 ** (bits - 1) - 1)
    signed = total - modulus if total >= modulus // 2 else total
    return base + float(Fraction(signed, weight)) * (clip / levels)


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869, sections 2.2 and 2.3."""
    key = hmac.digest(salt or bytes(32), secret, hashlib.sha256)
    block, out, number = b"", b"", 1
    while len(out) < length:
        block = hmac.digest(key, block + info + bytes([number]), hashlib.sha256)
        out, number = out + block, number + 1
    return out[:length]


def chacha20(key: bytes, length: int, counter: int = 0, nonce: bytes = bytes(12)) -> bytes:
    """RFC 8439, section 2.4.1: the key stream."""
    out = b""
    while len(out) < length:
        out, counter = out + _block(key, counter, nonce), counter + 1
    return out[:length]


def _block(key: bytes, counter: int, nonce: bytes) -> bytes:
    start = [
        *struct.unpack("<4I", b"expand 32-byte k"),
        *struct.unpack("<8I", key),
        counter,
        *struct.unpack("<3I", nonce),
    ]
    state = list(start)
    for _ in range(10):
        for a, b, c, d in (
            *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),
            *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),
        ):
            _quarter(state, a, b, c, d)
    return struct.pack("<16I", *((x + y) % 2**32 for x, y in zip(state, start, strict=True)))


def _quarter(s: list[int], a: int, b: int, c: int, d: int) -> None:
    for first, second, third, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[first] = (s[first] + s[second]) % 2**32
        mixed = s[third] ^ s[first]
        s[third] = (mixed << turn | mixed >> (32 - turn)) % 2**32
