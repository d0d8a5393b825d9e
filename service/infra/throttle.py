"""Lets the same thing through once a minute, so that who repeats himself fills no log."""

import time
from collections import OrderedDict

_AGAIN_SECONDS = 60.0
_MOST = 10_000


class Throttle:
    """Lets the same thing through once a minute."""

    def __init__(self, seconds: float = _AGAIN_SECONDS):
        self._seconds = seconds
        self._seen: OrderedDict[tuple[str, ...], float] = OrderedDict()

    def first(self, *key: str) -> bool:
        """Whether this was not let through within the last minute."""
        now = time.monotonic()
        if now - self._seen.get(key, -self._seconds) < self._seconds:
            return False
        self._seen[key] = now
        self._seen.move_to_end(key)
        if len(self._seen) > _MOST:
            self._seen.popitem(last=False)
        return True
