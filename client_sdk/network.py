"""The way of a request: straight to a service on this machine; elsewhere by the proxy of the environment, if any.

`httpx` would read HTTP_PROXY, ALL_PROXY, NO_PROXY and SSL_CERT_FILE by itself, for this machine too, and answers what
is wrong with them by tracebacks. Here each request's own address decides, and a certificate is read when one is needed.
"""

import ipaddress
import os
import ssl
import threading
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import httpx

from client_sdk.errors import UsageError
from contract.hosts import is_this_machine

PROXY = "potstill.proxy"
"""The request's extension that holds the `Proxy` it went by."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Proxy:
    """A proxy of the environment. `variable` is where it stands, such as ``HTTPS_PROXY``."""

    variable: str
    value: str

    def __str__(self) -> str:
        """Return variable and value, without a password."""
        scheme, sign, rest = self.value.rpartition("://")
        return f"{self.variable}={scheme}{sign}{rest.rpartition('@')[2]}"


def proxy_for(url: httpx.URL) -> Proxy | None:
    """Return the proxy that a request to an address goes by; none for this machine, nor for what NO_PROXY names."""
    if is_this_machine(url.host):
        return None
    named = urllib.request.getproxies()
    value = named.get(url.scheme) or named.get("all")
    if not value or _is_exempt(url, named.get("no", "")):
        return None
    variable = f"{url.scheme if named.get(url.scheme) else 'all'}_proxy"
    written = next((name for name in (variable, variable.upper()) if name in os.environ), "the system's proxy")
    return Proxy(written, value)


def _is_exempt(url: httpx.URL, no_proxy: str) -> bool:
    """Whether NO_PROXY leaves an address out: names with all below them, addresses, networks, ``*``; a port may follow.

    An entry that is none of these leaves out nothing.
    """
    host, port = url.host.rstrip(".").lower(), url.port or {"http": 80, "https": 443}.get(url.scheme)
    for entry in no_proxy.replace(",", " ").lower().split():
        name, wanted = _split(entry.rpartition("://")[2])
        if wanted is not None and wanted != str(port):
            continue
        if name == "*" or _is_within(host, name):
            return True
        name = name.removeprefix("*").strip(".")
        if name and (host == name or host.endswith(f".{name}")):
            return True
    return False


def _split(entry: str) -> tuple[str, str | None]:
    """Return an entry's name or address, without brackets, and its port."""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest[1:] if rest.startswith(":") else None
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, None  # an IPv6 address or network without brackets has no port


def _is_within(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def trusted(ca_file: str | Path | None) -> ssl.SSLContext:
    """Return what is trusted: the certificates of a file, of POTSTILL_CA_FILE or SSL_CERT_FILE, or the public ones.

    Raises:
        UsageError: the file holds none.
    """
    said = ("ca_file", str(ca_file)) if ca_file else _certificates()
    try:
        if said is None:
            return httpx.create_ssl_context(trust_env=False)
        name, path = said
        if name == "SSL_CERT_DIR":
            if not any(map(os.path.isdir, path.split(os.pathsep))):
                raise UsageError(f"SSL_CERT_DIR: {path} is no folder; name the one of the certificates, or unset it")
            return ssl.create_default_context(capath=path)
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        log = os.environ.get("SSLKEYLOGFILE")
        if log and not _can_append(log):
            raise UsageError(f"SSLKEYLOGFILE: {log} cannot be written; unset it, or name another file") from error
        name, path = said or ("the public certificates", "")
        raise UsageError(
            f"{name}: {path} cannot be read as PEM certificates: {error}; name a file that holds them, or leave it out"
        ) from error


def _certificates() -> tuple[str, str] | None:
    """Return the first variable that names certificates, and what it says."""
    for name in ("POTSTILL_CA_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        value = os.environ.get(name)
        if value:
            return name, value
    return None


def _can_append(path: str) -> bool:
    try:
        with open(path, "ab"):
            return True
    except OSError:
        return False


class Ways(httpx.BaseTransport):
    """Sends each request the way of its address.

    Args:
        ca_file: PEM file of the certificates to trust; see `trusted`.
    """

    def __init__(self, ca_file: str | Path | None = None):
        self._ca_file = ca_file
        self._known: dict[tuple[str, Proxy | None], httpx.HTTPTransport] = {}
        self._lock = threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request.

        Raises:
            UsageError: a variable of the environment that decides about its way is wrong.
        """
        proxy = proxy_for(request.url)
        if proxy is not None:
            request.extensions[PROXY] = proxy
        return self.to(request.url, proxy).handle_request(request)

    def to(self, url: httpx.URL, proxy: Proxy | None) -> httpx.HTTPTransport:
        """Return what sends to an address, by a proxy or without one.

        Raises:
            UsageError: as for `handle_request`.
        """
        with self._lock:
            way = (url.scheme, proxy)
            if way not in self._known:
                self._known[way] = self._open(url, proxy)
            return self._known[way]

    def _open(self, url: httpx.URL, proxy: Proxy | None) -> httpx.HTTPTransport:
        verify: ssl.SSLContext | bool = trusted(self._ca_file) if url.scheme == "https" else False
        if proxy is None:
            return httpx.HTTPTransport(verify=verify, trust_env=False)
        around = f"add {url.host} to NO_PROXY to reach it without a proxy"
        try:
            address = httpx.URL(proxy.value if "://" in proxy.value else f"http://{proxy.value}")
            if not address.host:
                raise ValueError("no host")
            context = trusted(self._ca_file) if address.scheme == "https" else None
            return httpx.HTTPTransport(verify=verify, trust_env=False, proxy=httpx.Proxy(address, ssl_context=context))
        except ImportError as error:
            raise UsageError(
                f"{proxy}: a SOCKS proxy needs a package more: pip install 'httpx[socks]'; or {around}"
            ) from error
        except (httpx.InvalidURL, ValueError) as error:
            raise UsageError(
                f"{proxy}: expected the address of a proxy such as http://proxy.example:3128; mend it, or {around}"
            ) from error

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for transport in self._known.values():
                transport.close()
            self._known.clear()
