"""Refused uploads become events, so that an operator sees why a device does not get through. A few, not a flood."""

import contextlib
import logging
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool

from service.api.services import Services
from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.operations.ledger import events

log = logging.getLogger("service.api")
_BUSY = "upload-locked"
"""Another connection of the same device delivers the same upload: nothing is refused, and asking again tells all."""


def _tell(services: Services, caller: Principal, round_id: str, error: DomainError) -> None:
    try:
        with services.store.write() as session:
            events.refused(session, caller.id, round_id, error.kind, error.detail)
    except Exception:
        log.exception("cannot tell of a refused upload")


@contextlib.asynccontextmanager
async def told(services: Services, caller: Principal, round_id: str) -> AsyncIterator[None]:
    """Tell of a refusal within the block; the device gets it all the same."""
    try:
        yield
    except DomainError as error:
        if error.kind != _BUSY and services.event_throttle.first(caller.id, round_id, error.kind):
            await run_in_threadpool(_tell, services, caller, round_id, error)
        raise
