"""What a JSON body may not be, whatever it says: nested deeply, for parsers recurse, or of two minds on a key."""

import asyncio
import re

from contract.json_text import RepeatedKey, read_json

_DEEPEST = 64
_LARGE = 2**16
"""Bytes from which on a thread reads."""
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


def depth_exceeds(body: bytes, most: int) -> bool:
    """Whether brackets outside of strings nest deeper than `most`. Looks no further than the first that does."""
    depth = 0
    for match in _TOKENS.finditer(body):
        first = match[0][0]
        if first in b"[{":
            depth += 1
            if depth > most:
                return True
        elif first in b"]}":
            depth -= 1
    return False


async def is_too_deep(body: bytes | bytearray) -> bool:
    """Whether a body is nested deeper than 64 levels; most have too few brackets to be looked at."""
    if body.count(b"[") + body.count(b"{") <= _DEEPEST:
        return False
    return await asyncio.to_thread(depth_exceeds, bytes(body), _DEEPEST)


def _repeated(body: bytes | bytearray) -> RepeatedKey | None:
    try:
        read_json(body)
    except RepeatedKey as error:
        return error
    except ValueError:
        return None  # no JSON: whoever needs it says so
    return None


async def repeated_key(body: bytes | bytearray) -> RepeatedKey | None:
    """Return what is wrong with a body of which an object says a key twice. It is not nested deeply."""
    return _repeated(body) if len(body) < _LARGE else await asyncio.to_thread(_repeated, body)
