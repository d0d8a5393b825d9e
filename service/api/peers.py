"""Who is at the other end: the client's address, and whether nobody on the way can read along.

Headers about the client count only when they come from a proxy that the settings name: anybody can send them.
"""

import ipaddress
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
PEER = "potstill.peer"
"""Of a request's scope: its `Peer`."""


@dataclass(frozen=True)
class Peer:
    """A client.

    Attributes:
        address: where it is; what a trusted proxy says, else the other end of the connection.
        is_tls: its connection is encrypted, here or at a trusted proxy that says so.
        is_private: TLS, or a trusted proxy that says nothing against it, or this machine.
    """

    address: str
    is_tls: bool
    is_private: bool


def _parse(text: str) -> Address | None:
    """Return an address; brackets, ports and zones are left out, IPv4 inside IPv6 is IPv4."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def resolve(scope: Scope, headers: Headers, trusted: tuple[Network, ...]) -> Peer:
    """Return who sent a request."""
    host = (scope.get("client") or ("", 0))[0]
    other_end, tls = _parse(host), scope.get("scheme") == "https"
    if other_end is None:  # a socket in the file system, or a program in this process
        return Peer(host, tls, True)
    if not _is_in(other_end, trusted):
        return Peer(str(other_end), tls, tls or other_end.is_loopback)
    said = headers.getlist("x-forwarded-proto")
    scheme = said[-1].rpartition(",")[2].strip().lower() if said else ""
    client = _forwarded(headers, other_end, trusted)
    return Peer(str(client), tls or scheme == "https", tls or scheme in ("https", ""))


def _is_in(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)


def _forwarded(headers: Headers, other_end: Address, trusted: tuple[Network, ...]) -> Address:
    """Return the last address in X-Forwarded-For that is no trusted proxy's: what stands before it may be made up."""
    found = other_end
    for text in reversed(",".join(headers.getlist("x-forwarded-for")).split(",")):
        address = _parse(text)
        if address is None:
            break
        found = address
        if not _is_in(address, trusted):
            break
    return found
