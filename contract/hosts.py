"""Which names and addresses are this machine's own."""

import ipaddress


def is_this_machine(host: str) -> bool:
    """Whether what is sent to a host name or address never leaves the machine."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified
