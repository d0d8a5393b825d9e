"""Holding a resumable upload while its bytes arrive or are delivered: taken, renewed in the background, given back."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from sqlalchemy.exc import OperationalError
from starlette.concurrency import run_in_threadpool

from service.api.services import Services
from service.domain.errors import DomainError
from service.operations.store import uploads
from service.operations.store.uploads import Held

log = logging.getLogger("service.uploads")
RENEW_SECONDS = 2.0


@contextlib.asynccontextmanager
async def holding(
    services: Services,
    owner: str,
    upload_id: str,
    offset: int | None = None,
    on_lost: Callable[[DomainError], None] = lambda error: None,
) -> AsyncIterator[Held]:
    """Hold an upload for the length of the block.

    Args:
        services: the database.
        owner: who asks.
        upload_id: the upload.
        offset: where the caller wants to go on.
        on_lost: told in the event loop when the owner wants the upload back, or somebody else has it.

    Raises:
        DomainError: not-found, upload-locked, upload-offset.
    """
    held = await run_in_threadpool(_take, services, owner, upload_id, offset)
    watch = asyncio.create_task(_watch(services, held, on_lost))
    try:
        yield held
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await run_in_threadpool(_let_go, services, held)


def _take(services: Services, owner: str, upload_id: str, offset: int | None) -> Held:
    with services.store.write() as session:
        return uploads.take(session, owner, upload_id, offset)


def _let_go(services: Services, held: Held) -> None:
    with services.store.write() as session:
        uploads.let_go(session, held)


def _renew(services: Services, held: Held) -> bool:
    with services.store.write() as session:
        return uploads.renew(session, held)


async def _watch(services: Services, held: Held, on_lost: Callable[[DomainError], None]) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        try:
            wanted = await run_in_threadpool(_renew, services, held)
        except DomainError as error:
            on_lost(error)
            return
        except OperationalError as error:  # the next turn comes before the lease ends
            log.warning("the lease of %s could not be renewed: %s", held.id, error)
            continue
        if wanted:
            on_lost(uploads.locked())
