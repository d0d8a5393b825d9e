"""What devices call: assignment, update, generator, discriminator."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from pydantic import Field

from contract.bodies import QUERY_NUMBER
from contract.tensors import Header
from contract.wire.devices import (
    Assignment,
    Declaration,
    Declared,
    DiscriminatorReceipt,
    GanReceipt,
    Heartbeat,
    HeartbeatReceipt,
    UpdateMetadata,
    UpdateReceipt,
)
from service.api import guard
from service.api.accepting import accept
from service.api.bodies import Gone
from service.api.deps import Device, Services
from service.api.intake import BODY, REFUSALS, receive
from service.api.problems import documented
from service.api.received import Received
from service.api.refusals import told
from service.api.routing import router_of
from service.api.services import Services as Parts
from service.api.source import Delivery
from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.operations.fleet import declarations, discriminators, generators, updates
from service.operations.fleet import heartbeats as beating

router = router_of("/v1", tag="devices")


@router.get("/assignment", responses=documented("unauthorized", "forbidden"))
async def get_assignment(
    request: Request,
    services: Services,
    caller: Device,
    wait: Annotated[
        float, Field(ge=0, le=60), QUERY_NUMBER, Query(description="seconds to wait for something to do")
    ] = 0,
    heartbeats: Annotated[
        bool, Query(description="this device sends heartbeats as soon as it is told to train: none, and it is lost")
    ] = False,
) -> Assignment:
    """Ask what to do now. With `wait`, the answer comes as soon as there is something to do, or at the end."""
    end = time.monotonic() + wait
    full = services.polls.enter(caller.id)
    if full is not None:
        raise DomainError("too-many-requests", f"{full}; close one, or ask again", retry_after=5)
    try:
        return await _poll(request, services, caller, end, heartbeats)
    finally:
        services.polls.leave(caller.id)


async def _poll(request: Request, services: Parts, caller: Principal, end: float, beats: bool) -> Assignment:
    while True:
        assignment, version = await services.desk.ask(caller, beats)
        left = end - time.monotonic()
        if assignment.action != "wait" or left <= 0 or services.changes.closing:
            return assignment
        guard.release_slot(request.scope)
        waiting = services.changes.wait(caller.federation_id or "", version, left)
        if await _first(waiting, _hung_up(request)):
            raise Gone


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] == "http.request":
        pass


async def _first(waiting: Coroutine[Any, Any, None], leaving: Coroutine[Any, Any, None]) -> bool:
    """Wait for whichever comes first; return whether it was the client's leaving."""
    tasks = [asyncio.ensure_future(waiting), asyncio.ensure_future(leaving)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return tasks[0] not in done


@router.put("/declaration", responses=documented("unauthorized", "forbidden", "invalid-field", "invalid-transition"))
def put_declaration(body: Declaration, services: Services, caller: Device) -> Declared:
    """Declare how many samples this device has now. Updates may tell of so many at most, for that is their weight; a
    device whose data set has grown declares it before it uploads, and operators see that it did.
    """
    with services.store.write() as session:
        return declarations.declared(declarations.declare(session, caller, body))


def _header(services: Parts, digest: str) -> Header:
    return services.blobs.store.header(digest)


def _manifest(services: Parts, ticket: updates.Ticket) -> Header:
    beside = None if ticket.beside_digest is None else _header(services, ticket.beside_digest)
    return ticket.manifest(_header(services, ticket.base_digest), beside)


@router.put(
    "/rounds/{round_id}/update",
    status_code=201,
    openapi_extra=BODY,
    responses=REFUSALS
    | documented("round-closed", "not-selected", "stale-base-model", "already-delivered", "invalid-field")
    | {200: {"model": UpdateReceipt, "description": "the same bytes came before"}},
)
async def put_update(
    round_id: Annotated[str, Path(max_length=64)],
    source: Delivery,
    response: Response,
    services: Services,
    caller: Device,
) -> UpdateReceipt:
    """Upload trained weights: a safetensors body like the round's model, with `num_samples` and `base_model` (and, if
    you like, `metrics` as JSON) in its `__metadata__`. Some objectives send more, DS-FL predictions instead.

    201: stored, and it counts. 200: the same bytes again. Everything else leaves nothing behind.
    """
    async with told(services, caller, round_id):
        ticket = await source.admit(caller, lambda session: updates.admit(session, round_id, caller))
        found: list[UpdateMetadata] = []

        def read_header(header: Header) -> None:
            found.append(updates.read_metadata(header.metadata, ticket))

        def read_whole(upload: Received) -> bool:
            updates.check_values(ticket, upload.path)
            return upload.bring(services)

        async with receive(source, lambda: _manifest(services, ticket), read_header, read_whole) as upload:
            receipt, fresh = await accept(
                services,
                caller,
                upload,
                lambda session: updates.accept(session, ticket, found[0], upload.digest, upload.size),
                updates.receipt,
                ticket.round_id,
            )
    response.status_code = 201 if fresh else 200
    return receipt


@router.post(
    "/rounds/{round_id}/heartbeat",
    responses=documented("unauthorized", "forbidden", "not-found", "not-selected", "round-closed"),
)
def post_heartbeat(
    round_id: Annotated[str, Path(max_length=64)], body: Heartbeat, services: Services, caller: Device
) -> HeartbeatReceipt:
    """Say that this device is alive and trains for a round, and how far it is; every `heartbeat_seconds` is enough.

    A device that has begun to say so and falls silent counts as lost, and so does one whose `passes` stay the same for
    long: the round no longer waits for it when the others are enough. One that never says so, and did not announce it
    when it asked for its assignment, is waited for until the deadline.
    """
    with services.store.read() as session:
        if not beating.admit(session, round_id, caller):
            return beating.receipt(session, round_id, caller.id)
    with services.store.write() as session:
        beating.record(session, round_id, caller.id, body)
        return beating.receipt(session, round_id, caller.id)


def _read_gan(services: Parts, metadata: dict[str, str], ticket: generators.Ticket) -> generators.Sent:
    with services.store.read() as session:
        return generators.read_metadata(session, metadata, ticket)


@router.put(
    "/federations/{federation_id}/gan",
    status_code=201,
    openapi_extra=BODY,
    responses=REFUSALS
    | documented("round-closed", "stale-base-model", "already-delivered", "invalid-field", "invalid-transition")
    | {200: {"model": GanReceipt, "description": "the same bytes came before"}},
)
async def put_gan(
    federation_id: Annotated[str, Path(max_length=64)],
    source: Delivery,
    response: Response,
    services: Services,
    caller: Device,
) -> GanReceipt:
    """Upload the generator and critic trained in a round of the federated generator (FedGO's G3): a safetensors body
    like the model that was sent, with `num_samples` and `base_model`, the id of that model, in its `__metadata__`; with
    differential privacy also `metrics` with the `epsilon` spent so far.
    """
    ticket = await source.admit(caller, lambda session: generators.admit(session, federation_id, caller))
    found: list[generators.Sent] = []

    def read_header(header: Header) -> None:
        found.append(_read_gan(services, header.metadata, ticket))

    def read_whole(upload: Received) -> bool:
        return upload.bring(services)

    async with receive(source, lambda: _header(services, ticket.template), read_header, read_whole) as upload:
        receipt, fresh = await accept(
            services,
            caller,
            upload,
            lambda session: generators.accept(session, ticket, found[0], upload.digest, upload.size),
            lambda session, row: generators.receipt(row),
        )
    response.status_code = 201 if fresh else 200
    return receipt


@router.put(
    "/federations/{federation_id}/discriminator",
    status_code=201,
    openapi_extra=BODY,
    responses=REFUSALS
    | documented("invalid-transition", "already-delivered", "invalid-field")
    | {200: {"model": DiscriminatorReceipt, "description": "the same bytes came before"}},
)
async def put_discriminator(
    federation_id: Annotated[str, Path(max_length=64)],
    source: Delivery,
    response: Response,
    services: Services,
    caller: Device,
) -> DiscriminatorReceipt:
    """Upload this device's discriminator (FedGO), trained once on local data against the generator's images. Where the
    assignment asks for differential privacy, `metrics` in its `__metadata__` has the `epsilon` spent so far.
    """
    template = await source.admit(caller, lambda session: discriminators.admit(session, federation_id, caller))

    def read_header(header: Header) -> None:
        with services.store.read() as session:
            discriminators.read_metadata(session, federation_id, header.metadata)

    def read_whole(upload: Received) -> bool:
        return upload.bring(services)

    async with receive(source, lambda: _header(services, template), read_header, read_whole) as upload:
        receipt, fresh = await accept(
            services,
            caller,
            upload,
            lambda session: discriminators.accept(session, federation_id, caller.id, upload.digest, upload.size),
            lambda session, row: discriminators.receipt(row),
        )
    response.status_code = 201 if fresh else 200
    return receipt
