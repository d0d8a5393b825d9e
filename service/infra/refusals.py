"""Refused requests, summed up by address until they are written to the audit log: an attacker cannot make it grow."""

import threading
from dataclasses import dataclass
from datetime import datetime

from service.infra import clock

_SHOWN, _KEPT = 20, 1000
OTHERS = "others"


@dataclass
class Refusal:
    """What was refused to one caller at one address."""

    address: str
    actor: str
    reason: str
    count: int
    first: datetime
    last: datetime


class Refusals:
    """Counts since the last look."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], Refusal] = {}
        self._lock = threading.Lock()

    def note(self, address: str, reason: str, actor: str = "unknown") -> None:
        """Count one refusal; beyond a thousand addresses they are counted together."""
        moment = clock.now()
        key = (address, actor, reason)
        with self._lock:
            if key not in self._found and len(self._found) >= _KEPT:
                key = (OTHERS, "unknown", OTHERS)
            known = self._found.get(key)
            if known is None:
                self._found[key] = Refusal(*key, count=1, first=moment, last=moment)
            else:
                known.count, known.last = known.count + 1, moment

    def drain(self) -> list[Refusal]:
        """Return the twenty largest counts and one for all the rest, and begin anew."""
        with self._lock:
            found, self._found = sorted(self._found.values(), key=lambda item: -item.count), {}
        shown, rest = found[:_SHOWN], found[_SHOWN:]
        if rest:
            count = sum(item.count for item in rest)
            first, last = min(item.first for item in rest), max(item.last for item in rest)
            shown.append(Refusal(OTHERS, "unknown", OTHERS, count, first, last))
        return shown
