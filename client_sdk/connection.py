"""How a service is reached: its address, the token, whom to trust and how patient to be; said once, then handed on."""

import os
import random
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import httpx

from client_sdk.errors import UsageError
from client_sdk.network import Proxy, Ways, proxy_for
from contract.hosts import is_this_machine

RESUMABLE_BYTES = 64 << 20
"""A file of this size or more goes by a resumable upload from the start."""
RETRIES = 6


class Options(TypedDict, total=False):
    """What may be said of a connection beside address and token, as keywords: the fields of `Connection`."""

    http_client: httpx.Client | None
    transport: httpx.BaseTransport | None
    ca_file: str | Path | None
    insecure_http: bool | None
    timeout: float
    retries: int | None
    resumable_bytes: int
    direct: bool
    sleep: Callable[[float], None]
    jitter: Callable[[], float]
    on_retry: Callable[[str], None] | None


@dataclass(frozen=True)
class Connection:
    """How to reach one service.

    Args:
        url: base address such as ``http://127.0.0.1:8080``.
        token: bearer token to begin with; sent to this origin only and never logged.
        http_client: an `httpx.Client` of yours (proxies, certificates); it stays open on `close`.
        transport: an `httpx.BaseTransport`, for tests.
        ca_file: PEM file of the certificates to trust, instead of the public ones; default: POTSTILL_CA_FILE.
        insecure_http: allow plain HTTP to other machines; default: POTSTILL_INSECURE_HTTP.
        timeout: seconds for connecting and for each read or write.
        retries: tries after the first one; None for 6, and for 10 in `train_and_push`.
        resumable_bytes: files of this size or more are uploaded in pieces by the tus protocol; smaller ones when an
            upload broke off.
        direct: put what a device delivers straight into the service's bucket, where it offers that (POTSTILL_PRESIGN);
            elsewhere it goes the usual way.
        sleep, jitter: replaced in tests.
        on_retry: told in a line why a request is tried again.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    _: KW_ONLY
    http_client: httpx.Client | None = None
    transport: httpx.BaseTransport | None = None
    ca_file: str | Path | None = None
    insecure_http: bool | None = None
    timeout: float = 60.0
    retries: int | None = None
    resumable_bytes: int = RESUMABLE_BYTES
    direct: bool = False
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    on_retry: Callable[[str], None] | None = None

    @classmethod
    def to(cls, service: str | Self, token: str | None = None, **options: Unpack[Options]) -> Self:
        """Return the connection to an address with these options, or a connection with these changes."""
        if isinstance(service, str):
            return cls(service, token, **options)
        changes: dict[str, Any] = dict(options) | ({} if token is None else {"token": token})
        return replace(service, **changes)

    def filled(self, **defaults: Unpack[Options]) -> Self:
        """Return it with defaults for what was left open, which is None."""
        missing: dict[str, Any] = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return replace(self, **missing)

    def base(self) -> httpx.URL:
        """Return the address that paths are added to.

        Raises:
            UsageError: it is none, or one at which others could read the token and the weights on their way.
        """
        wrong = f"url: expected an address such as http://127.0.0.1:8080, got {self.url!r}"
        try:
            base = httpx.URL(self.url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise UsageError(f"{wrong}: {error}") from error
        if base.scheme not in ("http", "https") or not base.host:
            raise UsageError(wrong)
        if self.transport is None:
            check_private(base, self.insecure_http, None if self.http_client else proxy_for(base))
        return base

    def open(self) -> httpx.Client:
        """Return what sends requests: the `http_client` that was given, or one for this connection.

        Raises:
            UsageError: the certificates to trust cannot be read, or the environment's proxy is none.
        """
        if self.http_client is not None:
            return self.http_client
        if self.transport is not None:
            return httpx.Client(transport=self.transport, timeout=self.timeout)
        ways, base = Ways(self.ca_file), self.base()
        ways.to(base, proxy_for(base))  # what is wrong is said now, not at the first request
        return httpx.Client(transport=ways, timeout=self.timeout)


def check_private(url: httpx.URL, insecure_http: bool | None = None, proxy: Proxy | None = None) -> None:
    """Refuse an address at which others could read the token and the weights on their way.

    Args:
        proxy: the one that the environment names for it. It reads plain HTTP, wherever it is.

    Raises:
        UsageError: plain HTTP to another machine, and nobody allowed it; or by a proxy.
    """
    if url.scheme == "https" or is_this_machine(url.host):
        return
    allowed = os.environ.get("POTSTILL_INSECURE_HTTP", "").lower() in ("1", "true", "yes", "on")
    if not (allowed if insecure_http is None else insecure_http):
        raise UsageError(
            f"url: plain HTTP to {url.host} would show token and weights to whoever is on the way; use https://, or "
            "allow it on a network that is safe by itself: insecure_http=True, or POTSTILL_INSECURE_HTTP=1"
        )
    if proxy is not None:
        raise UsageError(
            f"url: plain HTTP to {url.host} would go by a proxy, which reads token and weights ({proxy}); use "
            f"https://, or add {url.host} to NO_PROXY"
        )
