"""Signing a browser in and out: the operators' page asks for a token once, and keeps none."""

from dataclasses import replace
from typing import Any

from fastapi import Request, Response

from contract.wire.access import SessionBegin, SignedIn
from service.api import cookies, guard
from service.api.deps import Services, SignsIn, Visitor
from service.api.problems import documented
from service.api.routing import router_of
from service.api.services import Services as Parts
from service.domain.principal import Principal
from service.operations.access import sessions
from service.operations.ledger import audit

router = router_of("/v1", tag="tokens")
_NOBODY: dict[int | str, dict[str, Any]] = {204: {"description": "nobody is signed in"}}


def _signed_in(caller: Principal) -> SignedIn:
    return SignedIn.model_validate(caller, from_attributes=True)


def _end(services: Parts, request: Request) -> dict[str, str]:
    """End the session that a request's cookie is of, if it is of one; return the cookies."""
    given = cookies.given(request.scope, services.settings)
    if given:
        with services.store.write() as session:
            for secret in given.values():
                sessions.end(session, services.settings.key, secret)
    return given


@router.post("/session", status_code=201, responses=documented("unauthorized", "forbidden", "invalid-field"))
def sign_in(
    request: Request, response: Response, services: Services, caller: SignsIn, body: SessionBegin | None = None
) -> SignedIn:
    """Sign a browser in with a token: a cookie stands for it from here on. It is over 12 hours after its last use, 7
    days after it began, with its token, or signed out. It makes no tokens. Programs send the token itself.
    """
    _end(services, request)
    with services.store.write() as session:
        row, secret = sessions.begin(session, services.settings.key, caller)
        signed_in = _signed_in(replace(caller, expires_at=row.expires_at))
    guard.succeeded(services, audit.acting().address, secret)
    cookies.put(response, services.settings, request.scope, secret, body is not None and body.at_root)
    return signed_in


@router.get("/session", response_model=SignedIn, responses=_NOBODY | documented("forbidden"))
def show_session(request: Request, services: Services, caller: Visitor) -> Response | SignedIn:
    """Show who is signed in by cookie; 204 where nobody is."""
    if caller is not None:
        return _signed_in(caller)
    response = Response(status_code=204)
    cookies.remove(response, cookies.given(request.scope, services.settings))
    return response


@router.delete("/session", status_code=204, responses=documented("forbidden"))
def sign_out(request: Request, services: Services, caller: Visitor) -> Response:
    """Sign the browser out; its cookie is worth nothing from here on."""
    response = Response(status_code=204)
    cookies.remove(response, _end(services, request))
    return response
