"""Rates and quotas: how much of something one caller may have in a time.

Counts are in Redis when the broker is Redis, so that all replicas share them, else in this process. A Redis that does
not answer stops nobody: this process then counts alone.
"""

import ipaddress
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from limits import RateLimitItem, RateLimitItemPerDay, RateLimitItemPerMinute, RateLimitItemPerSecond
from limits.errors import StorageError
from limits.storage import MemoryStorage, Storage, storage_from_string
from limits.strategies import FixedWindowRateLimiter, SlidingWindowCounterRateLimiter

from service.config import Settings
from service.infra import clock

log = logging.getLogger("service.rates")
_ALONE_SECONDS = 5.0
RATE_BURST = 1000
"""Requests that a token may make at once; a join token, which many devices have, twenty times as many."""
RATE_PER_SECOND = 50.0
"""Requests a second that it may make in the long run."""
AUTH_FAILURES_PER_MINUTE = 100
"""False tokens from one address before it must wait."""
_KNOWN = 20_000
_LOOK_SECONDS = 60.0
Result = TypeVar("Result")


@dataclass(frozen=True)
class Budget:
    """What is left after a request: `seconds` until there is more."""

    allowed: bool
    limit: int
    remaining: int
    seconds: int
    window: int


class Memory(MemoryStorage):
    """Counts of this process. The library's starts a thread with every count, to look for what has expired, and waits
    until that runs; here whoever counts looks, now and then.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counting, self._looked = threading.Lock(), clock.steady()

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Add to a count, which begins anew when it has expired; return it."""
        with self._counting:
            self._look()
            self.get(key)
            self.storage[key] += amount
            if self.storage[key] == amount:
                self.expirations[key] = clock.wall() + expiry
            return self.storage[key]

    def decr(self, key: str, amount: int = 1) -> int:
        """Take from a count; return it."""
        with self._counting:
            self.get(key)
            self.storage[key] = max(self.storage[key] - amount, 0)
            return self.storage[key]

    def _look(self) -> None:
        if clock.steady() - self._looked < _LOOK_SECONDS:
            return
        self._looked = clock.steady()
        for key in list(self.expirations):
            self.get(key)


class Rates:
    """Counts of all callers.

    Args:
        on_alone: called when Redis does not answer.
    """

    def __init__(self, settings: Settings, on_alone: Callable[[], None] = lambda: None):
        self._memory, self._backward = Memory(), clock.STEPS.backward()
        self._shared: Storage | None = None
        if (settings.broker_url or "").startswith(("redis://", "rediss://", "redis+unix://")):
            patience = {"socket_timeout": 0.25, "socket_connect_timeout": 0.25}
            url = settings.broker_url or ""
            found = storage_from_string(url, wrap_exceptions=True, key_prefix="potstill", **patience)
            self._shared = cast(Storage, found)
        self._alone_until, self._on_alone = 0.0, on_alone
        window = max(1, round(RATE_BURST / RATE_PER_SECOND))
        self.requests = RateLimitItemPerSecond(RATE_BURST, window, namespace="requests")
        self.crowd = RateLimitItemPerSecond(20 * RATE_BURST, window, namespace="crowd")
        self.failures = RateLimitItemPerMinute(AUTH_FAILURES_PER_MINUTE, namespace="failures")
        self.bytes = RateLimitItemPerDay(settings.upload_bytes_per_day, namespace="bytes")

    @property
    def is_shared(self) -> bool:
        """Whether counts are in Redis, which takes a while to answer."""
        return self._shared is not None

    def _counted(self, act: Callable[[Storage], Result]) -> Result:
        if self._shared is not None and clock.steady() >= self._alone_until:
            try:
                return act(self._shared)
            except StorageError as error:
                self._alone_until = clock.steady() + _ALONE_SECONDS
                log.warning("Redis does not answer; this process counts rates alone for a while: %s", error)
                self._on_alone()
        if clock.STEPS.backward() != self._backward:  # windows would be open for as long as the clock went back
            self._backward, self._memory = clock.STEPS.backward(), Memory()
        return act(self._memory)

    def take(self, item: RateLimitItem, key: str) -> Budget:
        """Count one request."""

        def act(storage: Storage) -> Budget:
            limiter = SlidingWindowCounterRateLimiter(storage)
            allowed = limiter.hit(item, key)
            ends, left = limiter.get_window_stats(item, key)
            seconds = _until(ends, item)
            return Budget(allowed, item.amount, max(0, left), seconds, item.get_expiry())

        return self._counted(act)

    def is_over(self, item: RateLimitItem, key: str) -> bool:
        """Whether one more would be too many; counts nothing."""
        return not self._counted(lambda storage: SlidingWindowCounterRateLimiter(storage).test(item, key))

    def spend(self, item: RateLimitItem, key: str, amount: int) -> None:
        """Count an amount that is gone already, such as bytes that were read."""
        self._counted(lambda storage: FixedWindowRateLimiter(storage).hit(item, key, cost=amount))

    def left(self, item: RateLimitItem, key: str) -> tuple[int, int]:
        """Return what is left of an amount, and the seconds until it is whole again."""

        def act(storage: Storage) -> tuple[int, int]:
            ends, left = FixedWindowRateLimiter(storage).get_window_stats(item, key)
            return max(0, left), _until(ends, item)

        return self._counted(act)


def _until(ends: float, item: RateLimitItem) -> int:
    """Return the seconds until a moment by the clock, no more than a window has."""
    return min(max(1, round(ends - clock.wall())), item.get_expiry())


class RecentTokens:
    """Tokens that were good a short while ago, by address: false tokens from the same network do not stop them."""

    def __init__(self, seconds: float = 600.0):
        self._seconds, self._seen, self._lock = seconds, OrderedDict[tuple[str, str], float](), threading.Lock()

    def add(self, address: str, token_hash: str) -> None:
        """Note a good token."""
        with self._lock:
            self._seen[(address, token_hash)] = clock.steady()
            self._seen.move_to_end((address, token_hash))
            if len(self._seen) > _KNOWN:
                self._seen.popitem(last=False)

    def has(self, address: str, token_hash: str) -> bool:
        """Whether a token was good here a short while ago."""
        with self._lock:
            seen = self._seen.get((address, token_hash))
        return seen is not None and clock.steady() - seen < self._seconds


class Slots:
    """What callers hold open in this process, such as long polls: so many each, so many together.

    Args:
        what: its name in the plural.
        each: slots of one caller.
        together: slots of all.
    """

    def __init__(self, what: str, each: int, together: int):
        self._what, self._each, self._together = what, each, together
        self._open: dict[str, int] = {}
        self._taken = 0
        self._lock = threading.Lock()

    def enter(self, caller: str) -> str | None:
        """Take one; return why there is none, or None."""
        with self._lock:
            mine = self._open.get(caller, 0)
            if mine >= self._each:
                return f"this token has {mine} {self._what} open, and {self._each} is its limit"
            if self._taken >= self._together:
                return f"the service holds {self._taken} {self._what} open, and {self._together} is its limit"
            self._open[caller] = mine + 1
            self._taken += 1
        return None

    def leave(self, caller: str) -> None:
        """Give one back."""
        with self._lock:
            self._taken -= 1
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]


def network_of(address: str) -> str:
    """Return what failures are counted by: an IPv4 address, or the /64 of an IPv6 one, which one customer has whole."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if found.version == 4:
        return str(found)
    return str(ipaddress.ip_network((found, 64), strict=False))
