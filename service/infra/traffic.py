"""How many bytes of files went to and came from whom: counted in memory by request, taken to the database in batches.

A request says whose bytes its are, and the outermost layer counts them when it is over (`service.api.telemetry`).
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

AFTERWARDS = -1
"""The round of what is fetched when a federation is over."""
_READS, _FILES = ("GET", "HEAD"), ("200", "206", "307")


@dataclass(frozen=True, order=True)
class Account:
    """Whose bytes, of what.

    Attributes:
        federation_id: of which federation.
        round_index: of which round, the newest there was; 0 before the first, `AFTERWARDS` when it is over.
        client_id: the device's; empty for people and programs.
        item: id of the model that was downloaded, or what was uploaded.
    """

    federation_id: str
    round_index: int
    client_id: str
    item: str


@dataclass(frozen=True)
class Counts:
    """Bytes to the caller, bytes from it, and in how many requests."""

    down: int = 0
    up: int = 0
    requests: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.down + other.down, self.up + other.up, self.requests + other.requests)


class Traffic:
    """What was counted since it was last taken away; any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Account, Counts] = {}

    def request(self, account: Account, method: str, status: str, bytes_: Counts) -> None:
        """Count a request that is over: of one that reads what went out, where that was a file, else what came."""
        if method not in _READS:
            self.add({account: Counts(up=bytes_.up, requests=1)})
        elif method == "GET" and status in _FILES:
            self.add({account: Counts(down=bytes_.down, requests=1)})

    def add(self, counts: Mapping[Account, Counts]) -> None:
        """Add counts, also those that could not be written."""
        with self._lock:
            for account, more in counts.items():
                self._counts[account] = self._counts.get(account, Counts()) + more

    def drain(self) -> dict[Account, Counts]:
        """Return what was counted, and begin anew."""
        with self._lock:
            found, self._counts = self._counts, {}
        return found
