"""What a request must pass before it does anything: is its address guessing tokens, is its token asking too fast?"""

from typing import Any

from starlette.types import Scope

from service.api.services import Services
from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.infra import tokens as forge
from service.infra.concurrency import ConcurrencyLimit
from service.infra.rates import Budget, network_of

RATE, SPENT, SLOT = "potstill.rate", "potstill.spent", "potstill.slot"


def check_address(services: Services, address: str, token: str | None) -> None:
    """Refuse an address that has sent too many false tokens, before the next one is looked up. A token that was good
    from there a short while ago passes: one broken device does not stop the others behind the same address.

    Raises:
        DomainError: too-many-requests.
    """
    rates = services.rates
    if token is None or services.recent_tokens.has(address, forge.hash_token(services.settings.key, token)):
        return
    if not rates.is_over(rates.failures, network_of(address)):
        return
    services.refusals.note(address, "throttled")
    raise DomainError(
        "too-many-requests", "too many tokens from this address were refused; wait a minute", retry_after=60
    )


def limit_of(services: Services, address: str, token: str | None, *, sends: bool) -> tuple[ConcurrencyLimit, str]:
    """Return which limit of concurrency a request counts in, and by what name.

    That is its token's, if it was good from there a short while ago, else its address's: nothing is looked up for it,
    and made-up tokens get no slots of their own. Uploads, which may take hours, have a limit of their own, by token
    always: devices behind one address do not wait for each other's.
    """
    known = forge.hash_token(services.settings.key, token) if token else ""
    if known and (sends or services.recent_tokens.has(address, known)):
        return (services.upload_concurrency if sends else services.concurrency), known
    return services.concurrency, network_of(address)


def release_slot(scope: Scope) -> None:
    """Let another request of the caller work: this one only waits from here on, or is over."""
    release = scope.pop(SLOT, None)
    if release is not None:
        release()


def failed(services: Services, address: str, token: str | None, reason: str) -> None:
    """Count a refused authentication. A request without a token is no attempt."""
    if token is None:
        return
    services.rates.take(services.rates.failures, network_of(address))
    services.refusals.note(address, reason)


def succeeded(services: Services, address: str, token: str) -> None:
    """Note that a token is good from here."""
    services.recent_tokens.add(address, forge.hash_token(services.settings.key, token))


def spend(services: Services, caller: Principal, scope: Scope, announced: int) -> None:
    """Count a request of a token, and hold its body against the day's bytes. Tokens are counted by their owner, so
    that a rotation does not begin anew; a join token is a whole crowd's, and gets twenty times as much.

    Raises:
        DomainError: too-many-requests.
    """
    rates = services.rates
    item = rates.crowd if caller.role == "join" else rates.requests
    budget = rates.take(item, caller.id)
    scope[RATE] = budget
    if not budget.allowed:
        raise DomainError(
            "too-many-requests",
            f"this token may make {budget.limit} requests in {budget.window} seconds; wait {budget.seconds} seconds",
            retry_after=budget.seconds,
            limit=budget.limit,
        )
    scope[SPENT] = caller.id
    check_bytes(services, caller.id, announced)


def check_bytes(services: Services, caller_id: str, announced: int) -> None:
    """Hold so many bytes that are about to come against what is left of the day's.

    Raises:
        DomainError: too-many-requests.
    """
    rates = services.rates
    if announced <= 0:
        return
    left, seconds = rates.left(rates.bytes, caller_id)
    if announced > left:
        raise DomainError(
            "too-many-requests",
            f"this token may send {rates.bytes.amount} bytes a day, {left} are left; the rest in {seconds} seconds",
            retry_after=seconds,
            limit=rates.bytes.amount,
        )


def headers(budget: Budget | None) -> dict[str, str]:
    """Return what tells a client how much is left (draft-ietf-httpapi-ratelimit-headers)."""
    if budget is None:
        return {}
    return {
        "RateLimit-Policy": f'"requests";q={budget.limit};w={budget.window}',
        "RateLimit": f'"requests";r={budget.remaining};t={budget.seconds}',
    }


def count_bytes(services: Services, scope: Scope, received: int, *, more: bool = False) -> None:
    """Count what came of a request's body against the day's bytes.

    Args:
        services: the counts.
        scope: the request.
        received: bytes since the last call.
        more: the body goes on, unless the day's bytes are used up: it may have no length, or be one of many at once.

    Raises:
        DomainError: too-many-requests, with `more`.
    """
    caller: Any = scope.get(SPENT)
    if caller is None:
        return
    if received:
        services.rates.spend(services.rates.bytes, caller, received)
    if more:
        check_bytes(services, caller, 1)
