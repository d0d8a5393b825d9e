"""How deep a JSON body is nested, before anything parses it: parsers and validators recurse."""

import asyncio
import re

_DEEPEST = 64
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
