"""Who may connect: as many as this process can serve, and of one address no more than half of them.

A connection takes a file descriptor before anybody knows who it is. Without an end to them, a stranger who opens many
takes those of the database and of everybody else.
"""

import contextlib
import ipaddress
import logging
from collections import Counter
from functools import cache

from service import config
from service.infra.rates import network_of

log = logging.getLogger("service.connections")
MAX_CONNECTIONS = 10_000
"""Connections of one API process; half of them for one address."""
SPARE = 256
"""Open files for the database, the broker and weights."""
Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
_LOOPBACK: Networks = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


class ConnectionLimits:
    """Open connections of this process; used in the event loop only.

    Args:
        together: connections of all.
        each: connections of one address, of an IPv6 /64.
        free: networks that only the first limit holds for: this machine, and proxies, behind which are many.
    """

    def __init__(self, together: int, each: int, free: Networks):
        self._together, self._each, self._free = together, each, free
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count a connection, which `leave` ends; return whether it may stay."""
        place = self._place(address)
        self._open[place] += 1
        return self._open.total() <= self._together and (not place or self._open[place] <= self._each)

    def leave(self, address: str) -> None:
        """Count one less."""
        place = self._place(address)
        self._open[place] -= 1
        if not self._open[place]:
            del self._open[place]

    def _place(self, address: str) -> str:
        """Return by what an address is counted; empty where it is not."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:  # a socket in the file system
            return ""
        found = getattr(found, "ipv4_mapped", None) or found
        return "" if any(found in network for network in self._free) else network_of(str(found))


def open_files(wanted: int) -> int:
    """Let this process open as many files as wanted, or as the system lets it; return how many those are."""
    try:
        import resource
    except ImportError:  # Windows
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        goal = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else soft


@cache
def connection_limits() -> ConnectionLimits:
    """Return the limits of this process, as its settings and the system want them."""
    settings = config.load()
    wanted = MAX_CONNECTIONS + SPARE
    found = max(8, open_files(wanted) - SPARE)
    if found < MAX_CONNECTIONS:
        log.warning("the system lets this process open %d connections; raise its limit of open files", found)
    return ConnectionLimits(found + 64, max(4, min(MAX_CONNECTIONS, found) // 2), _LOOPBACK + settings.proxies)
