"""The page's cookie, which carries a session in a token's place, and what a request by it must show.

A browser adds a cookie to requests that other pages make. `SameSite=Strict` keeps it from other sites; a page of
another host of the same site is told by the browser (`Sec-Fetch-Site`), or lacks a header that no form and, as CORS is
closed, no script from elsewhere can send. What shows neither changes nothing.
"""

import hmac
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import Scope

from service.api.peers import PEER
from service.config import Settings
from service.domain.errors import DomainError

PAGE_HEADER = "Potstill-Page"
_HOST, _SECURE = "__Host-", "__Secure-"
_READS = ("GET", "HEAD")


def name_of(settings: Settings) -> str:
    """Return the cookie's name, without its prefix: browsers send cookies of all ports of a host, so that two services
    on one need two names. It tells nothing of the key that it is made of.
    """
    return f"potstill-{hmac.digest(settings.key, b'cookie', sha256).hex()[:8]}"


def given(scope: Scope, settings: Settings) -> dict[str, str]:
    """Return the session cookies that a request brings, by their names, the best guarded one first.

    One without a prefix may be of whoever can answer plain HTTP in this host's name: over TLS it is not read.
    """
    text = Headers(scope=scope).get("cookie", "")
    if "potstill-" not in text:
        return {}
    found, name = cookie_parser(text), name_of(settings)
    names = (_HOST + name, _SECURE + name, *(() if scope[PEER].is_tls else (name,)))
    return {each: found[each] for each in names if found.get(each)}


def check_page(method: str, headers: Headers) -> None:
    """Refuse a request by cookie that does not show that this service's own page made it.

    Raises:
        DomainError: forbidden.
    """
    site = headers.get("sec-fetch-site")
    if method in _READS:
        good = site in (None, "same-origin", "none")
    else:
        good = site == "same-origin" if site is not None else PAGE_HEADER in headers
    if not good:
        raise DomainError(
            "forbidden",
            "a request by cookie must come from the service's own page: a browser says Sec-Fetch-Site: same-origin, "
            f"others send the header {PAGE_HEADER}; programs use a token",
        )


def secret_in(scope: Scope, settings: Settings) -> str | None:
    """Return the session's secret that a request brings by cookie."""
    return next(iter(given(scope, settings).values()), None)


def put(response: Response, settings: Settings, scope: Scope, secret: str, at_root: bool) -> None:
    """Have a browser keep a session's secret, out of reach of scripts, until it closes.

    Without a path a browser sends it to where it asked and below: `/v1`, under whatever path a proxy has put us.
    """
    name, said = name_of(settings), Headers(scope=scope).get("origin", "")
    secure = scope[PEER].is_tls or said.startswith("https://")  # a proxy that is not trusted: the browser knows
    if secure and at_root:
        _set(response, _HOST + name, secret)
    else:
        _set(response, _SECURE + name if secure else name, secret)


def remove(response: Response, names: dict[str, str]) -> None:
    """Have a browser forget these cookies."""
    for name in names:
        _set(response, name, "", "; Max-Age=0")


def _set(response: Response, name: str, value: str, more: str = "") -> None:
    path = "; Path=/" if name.startswith(_HOST) else ""
    secure = "; Secure" if name.startswith((_HOST, _SECURE)) else ""
    response.headers.append("Set-Cookie", f"{name}={value}; HttpOnly; SameSite=Strict{path}{secure}{more}")
