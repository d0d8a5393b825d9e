"""Answers that are not the service's but a proxy's, a login page, another server's: no verdict on what was sent."""

import httpx

from contract.wire.problems import MEDIA_TYPE

_PROBLEM_TYPES = (MEDIA_TYPE, "application/json")


def is_foreign(response: httpx.Response) -> bool:
    """Whether an answer without a body to read, as HEAD's, says by its type that something else gave it."""
    media = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return bool(media) and media not in _PROBLEM_TYPES


def explain(response: httpx.Response) -> str:
    """Return what an answer without a problem document of ours says, and what to do."""
    request, status = response.request, response.status_code
    origin = f"{request.url.scheme}://{request.url.netloc.decode()}"
    who = f"something between here and the service ({_server(response)}no problem document of potstill)"
    what = f"{request.method} {request.url.path}"
    if response.has_redirect_location:
        target = request.url.join(response.headers["Location"])
        return (
            f"{what}: {origin} sends to {target}; if that is the service, give its address instead "
            f"({target.scheme}://{target.netloc.decode()}), redirects are not followed with a token"
        )
    if status == 413:
        sent = request.headers.get("Content-Length", "")
        size = f"a body of {int(sent):,} bytes" if sent.isdecimal() else "the body"
        return f"{what}: {who} refused {size}; have its limit raised (nginx: client_max_body_size)"
    if status in (502, 503, 504):
        return f"{what}: {who} answered {response.reason_phrase}; it does not reach the service"
    reason = response.reason_phrase or "an error"
    return f"{what}: {who} answered {reason}; or is {origin} not the address of a potstill service?"


def _server(response: httpx.Response) -> str:
    name = response.headers.get("Server", "")
    return f"{name[:40]}, " if name.isprintable() and name else ""
