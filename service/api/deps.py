"""What routes ask for: the services, the caller, the page, the idempotency key.

No database session is a dependency: its exit would run in another thread of the pool than the route, and requests that
wait for SQLite's write lock could hold every thread that the holder needs to go on. A route opens its own unit of work.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, ParamSpec, cast

from fastapi import Depends, Header, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import Field
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from contract import log_lines
from contract.bodies import QUERY_COUNT
from service.api import cookies, guard, services
from service.domain.errors import DomainError
from service.domain.principal import Principal, Role
from service.operations.access import sessions, tokens
from service.operations.ledger import audit

Given = ParamSpec("Given")
_bearer = HTTPBearer(auto_error=False, description="a token: operator, viewer, device or join token")


async def get_services(request: Request) -> services.Services:
    """Return the services of this process."""
    return cast(services.Services, request.app.state.services)


Services = Annotated[services.Services, Depends(get_services)]
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


async def get_principal(request: Request, parts: Services, credentials: Credentials) -> Principal:
    """Return the caller, or refuse with unauthorized, or with too-many-requests who guesses or asks too fast. Writes
    only when a token is first used after something changed, and the moment of use every ten minutes.

    A token is looked for first, then the cookie of a session, which must come from our own page.
    """
    keys, token = parts.settings.keys, credentials.credentials if credentials else None
    secret = cookies.secret_in(request.scope, parts.settings) if token is None else None
    if secret is not None:
        cookies.check_page(request.method, request.headers)
    shown, address = token if secret is None else secret, audit.acting().address
    await _counted(parts, guard.check_address, parts, address, shown)

    def read(session: Session) -> Principal:
        if secret is not None:
            return sessions.authenticate(session, keys[0], secret)
        return tokens.authenticate(session, keys, token)

    try:
        principal = await parts.together.read(read)
    except DomainError as error:
        reason = str(error.members.get("reason", error.kind))
        await _counted(parts, guard.failed, parts, address, shown, reason)
        raise
    if shown is not None:
        guard.succeeded(parts, address, shown)
    await _counted(parts, guard.spend, parts, principal, request.scope, _announced(request))
    if principal.unsettled:
        await run_in_threadpool(_settle, parts, principal, token)
    audit.acting().principal = principal
    client_id = principal.id if principal.role == "device" else None
    log_lines.note(federation_id=principal.federation_id, client_id=client_id)
    return principal


async def _counted(
    parts: services.Services, act: Callable[Given, None], *given: Given.args, **named: Given.kwargs
) -> None:
    """Do what counts rates: here, where they are in memory, in a thread, where Redis is asked."""
    if parts.rates.is_shared:
        await run_in_threadpool(act, *given, **named)
    else:
        act(*given, **named)


def _settle(parts: services.Services, caller: Principal, token: str | None) -> None:
    with contextlib.suppress(OperationalError), parts.store.write() as session:  # another use will do as well
        if caller.session is not None:
            sessions.settle(session, caller)
        elif token is not None:
            tokens.settle(session, parts.settings.keys, token)


def _announced(request: Request) -> int:
    """Return how many bytes a request says that it brings; one, at least, of a body without a length."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else int("transfer-encoding" in request.headers)


Anyone = Annotated[Principal, Depends(get_principal)]


async def get_caller(request: Request, parts: Services, credentials: Credentials) -> Principal | None:
    """Return the caller; None for a request without a token, and without a session in its place."""
    unknown = credentials is None and cookies.secret_in(request.scope, parts.settings) is None
    return None if unknown else await get_principal(request, parts, credentials)


Perhaps = Annotated[Principal | None, Depends(get_caller)]


async def get_visitor(request: Request, parts: Services) -> Principal | None:
    """Return who is signed in by cookie; None where nobody is, or no longer."""
    if cookies.secret_in(request.scope, parts.settings) is None:
        return None
    try:
        return await get_principal(request, parts, None)
    except DomainError as error:
        if error.kind != "unauthorized":
            raise
        return None


BY_COOKIE: set[Any] = {get_visitor, get_caller}
"""Dependencies that let in who is signed in by cookie, as far as the API's document tells."""
Visitor = Annotated[Principal | None, Depends(get_visitor)]
_WANTED = {"operator": "an operator's", "viewer": "a viewer's", "device": "a device's", "join": "a join"}


def need(*roles: Role, itself: bool = False) -> Callable[[Principal, services.Services], Awaitable[Principal]]:
    """Return a dependency that lets only these roles in; no session in its token's place, where it must be the token
    `itself`: what is made there outlives a session.
    """

    async def check(principal: Anyone, parts: Services) -> Principal:
        if principal.role not in roles or (itself and principal.session is not None):
            parts.refusals.note(audit.acting().address, "role", principal.id)
            wanted = " or ".join(_WANTED[role] for role in roles)
            this = _WANTED[principal.role] if principal.session is None else "the page's session"
            raise DomainError("forbidden", f"this needs {wanted} token, this one is {this}")
        return principal

    if not itself and {"operator", "viewer"} & set(roles):
        BY_COOKIE.add(check)
    return check


Operator = Annotated[Principal, Depends(need("operator"))]
Viewer = Annotated[Principal, Depends(need("operator", "viewer"))]
Device = Annotated[Principal, Depends(need("device"))]
Uploader = Annotated[Principal, Depends(need("device", "operator"))]
Joiner = Annotated[Principal, Depends(need("join"))]
Candidate = Annotated[Principal, Depends(need("join", "device"))]
Holder = Annotated[Principal, Depends(need("operator", "viewer", "device"))]
Rotator = Annotated[Principal, Depends(need("operator", "viewer", "device", itself=True))]
TokenMaker = Annotated[Principal, Depends(need("operator", itself=True))]
SignsIn = Annotated[Principal, Depends(need("operator", "viewer", itself=True))]

Limit = Annotated[int, Field(ge=1, le=500), QUERY_COUNT, Query(description="items on a page")]
After = Annotated[str | None, Query(max_length=64, description="the `next` of the page before")]
NewestFirst = Annotated[bool, Query(description="begin with the newest; `after` then leads to older ones")]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", max_length=200, description="the same key and body get the first answer again"),
]
