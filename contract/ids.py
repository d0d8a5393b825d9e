"""Prefixed identifiers that sort by the time they were made."""

import os
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford base 32: no i, l, o, u
_lock = threading.Lock()
_last = 0

PREFIXES = {
    "federation": "fed",
    "client": "cli",
    "round": "rnd",
    "update": "upd",
    "model": "mdl",
    "dataset": "dst",
    "network": "net",
    "job": "job",
    "token": "tok",
    "discriminator": "dsc",
    "gan_update": "gup",
    "worker": "wrk",
    "upload": "upl",
    "provenance": "prv",
    "ensemble": "ens",
    "prediction": "prd",
}


def _encode(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        digits.append(_ALPHABET[number & 31])
        number >>= 5
    return "".join(reversed(digits))


def new_id(kind: str) -> str:
    """Return a fresh id such as ``fed_01kb2m4x7q0d3w8v5tjz6c``.

    Eleven characters hold microseconds since 1970, twelve are random. Ids made by one process are strictly
    increasing, so lists sorted by id are in order of creation.

    Raises:
        KeyError: `kind` is not one of `PREFIXES`.
    """
    global _last
    with _lock:
        _last = max(_last + 1, time.time_ns() // 1000)
        now = _last
    return f"{PREFIXES[kind]}_{_encode(now, 11)}{_encode(int.from_bytes(os.urandom(8), 'big'), 12)}"
