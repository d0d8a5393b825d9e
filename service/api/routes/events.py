"""The event feed: a live stream for people and programs that look on, pages for those that poll."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Header, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from contract.bodies import QUERY_COUNT
from contract.bounds import ID
from contract.wire.events import Event, EventPage
from contract.wire.rounds import Job
from service.api.deps import Services, Viewer
from service.api.problems import documented
from service.api.routing import router_of
from service.api.services import Services as Parts
from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.operations.access import sessions
from service.operations.ledger import events
from service.operations.progress import reading

router = router_of("/v1", tag="events")
HEARTBEAT_SECONDS = 15.0
STREAM_SECONDS = 300.0  # then the viewer comes again, and its token is looked at again
_PAGE = 500
_TOP = 2**53

Format = Annotated[
    Literal["sse", "json"] | None,
    Query(description="`json` for one page; else a stream, unless the request accepts JSON only"),
]
Position = Annotated[
    Annotated[int, Field(ge=0, le=_TOP), QUERY_COUNT] | None,
    Query(description="only events after this number; 0 for all there are"),
]
Newest = Annotated[
    Annotated[int, Field(ge=0, le=_PAGE), QUERY_COUNT] | None,
    Query(description="begin with the newest so many; 0: from now on"),
]
Count = Annotated[int, Field(ge=1, le=_PAGE), QUERY_COUNT, Query(description="events on a JSON page")]
Accept = Annotated[str, Header(include_in_schema=False)]
LastId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=ID, description="as `after`: a stream that broke off goes on")
]
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "model": EventPage,
        "description": "a stream of server-sent events, or a page of JSON",
        "content": {
            "text/event-stream": {
                "example": 'id: 117\nevent: round.published\ndata: {"sequence": 117, "kind": "round.published", …}\n\n'
            }
        },
    }
}
_ALL = _STREAM | documented("unauthorized", "forbidden", "invalid-field", "too-many-requests")


def _begin(
    services: Parts, federation_id: str | None, after: int | None, last_id: str | None, newest: int | None
) -> int:
    """Return the position to begin from: the stream's own last id first, then what was asked for, else the very first.

    Raises:
        DomainError: not-found.
    """
    with services.store.read() as session:
        if federation_id is not None:
            reading.get(session, federation_id)
        if last_id is not None and last_id.isdecimal() and last_id.isascii():
            return min(int(last_id[:16]), _TOP)
        if newest is not None and after is None:
            return events.before_newest(session, newest, federation_id)
        return after or 0


def _page(services: Parts, federation_id: str | None, position: int, limit: int) -> EventPage:
    with services.store.read() as session:
        return events.page(session, position, limit, federation_id)


def _frame(event: Event) -> str:
    return f"id: {event.sequence}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"


def _passing(name: str, data: Any) -> str:
    """Return a line that is not kept: it has no id."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _progress(jobs: list[Job], federation_id: str | None) -> str:
    return _passing("progress", [_json(job) for job in jobs if federation_id in (None, job.federation_id)])


def _json(body: BaseModel) -> Any:
    return body.model_dump(mode="json")


async def _next_page(
    services: Parts, caller: Principal, federation_id: str | None, position: int, limit: int
) -> EventPage:
    """Read a page when the caller has a free slot: many streams that are far behind do not take every thread."""
    while not await services.concurrency.acquire(caller.id):
        await asyncio.sleep(1)
    try:
        return await run_in_threadpool(_page, services, federation_id, position, limit)
    finally:
        services.concurrency.release(caller.id)


async def _news(
    services: Parts, caller: Principal, federation_id: str | None, position: int
) -> tuple[list[Event], int, bool]:
    """Return what comes after a position, where that leads, and whether it took a look at the database."""
    recent = services.feed.after(position)
    if recent is not None:
        return [e for e in recent[0] if federation_id in (None, e.federation_id)], recent[1], False
    page = await _next_page(services, caller, federation_id, position, _PAGE)
    return page.items, page.next, True


def _is_good(services: Parts, caller: Principal) -> bool:
    with services.store.read() as session:
        try:
            sessions.check_still_good(session, caller)
        except DomainError:
            return False
    return True


class _Stream(StreamingResponse):
    """A stream that holds one of its token's slots until it has ended, whoever ends it."""

    def __init__(self, services: Parts, caller: Principal, lines: AsyncIterator[str]):
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self._leave = partial(services.streams.leave, caller.id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def _lines(services: Parts, caller: Principal, federation_id: str | None, position: int) -> AsyncIterator[str]:
    feed, end, told, spoke = services.feed, time.monotonic() + STREAM_SECONDS, "", time.monotonic()
    looked = spoke
    with feed.viewer():
        yield "retry: 2000\n\n"
        first = await _next_page(services, caller, federation_id, position, 1)
        if first.missed:
            yield _passing("missed", {"after": position})
        while not feed.closing and time.monotonic() < end:
            if time.monotonic() - looked >= HEARTBEAT_SECONDS:
                looked = time.monotonic()
                if not await run_in_threadpool(_is_good, services, caller):
                    break
            bell = feed.bell
            found, ahead, by_itself = await _news(services, caller, federation_id, position)
            lines = [_frame(event) for event in found]
            position = max(position, ahead)
            progress = _progress(feed.jobs, federation_id)
            if progress != told and (told or feed.jobs):
                lines.append(progress)
                told = progress
            if not lines and time.monotonic() - spoke >= HEARTBEAT_SECONDS:
                lines.append(f": still here\nid: {position}\n\n")  # what other federations did is not looked at again
            if lines:
                spoke = time.monotonic()
                yield "".join(lines)
            if by_itself and found:
                continue
            await feed.wait(bell, max(0.05, spoke + HEARTBEAT_SECONDS - time.monotonic()))
        yield ": bye\n\n"


async def _answer(
    services: Parts,
    caller: Principal,
    federation_id: str | None,
    position: int,
    limit: int,
    format_: str | None,
    accept: str,
) -> Response:
    only_json = "application/json" in accept and "text/event-stream" not in accept and "*/*" not in accept
    if format_ == "json" or (format_ is None and only_json):
        page = await run_in_threadpool(_page, services, federation_id, position, limit)
        return Response(page.model_dump_json(), media_type="application/json", headers={"Cache-Control": "no-store"})
    full = services.streams.enter(caller.id)
    if full is not None:
        raise DomainError("too-many-requests", f"{full}; close one, or poll with ?format=json", retry_after=5)
    return _Stream(services, caller, _lines(services, caller, federation_id, position))


@router.get(
    "/federations/{federation_id}/events", response_class=StreamingResponse, responses=_ALL | documented("not-found")
)
async def federation_events(
    federation_id: Annotated[str, Path(max_length=64)],
    services: Services,
    caller: Viewer,
    after: Position = None,
    newest: Newest = None,
    limit: Count = 100,
    format: Format = None,
    accept: Accept = "*/*",
    last_event_id: LastId = None,
) -> Response:
    """Look on: every event of a federation as it happens, and those before. A stream that broke off goes on where it
    was with `Last-Event-ID`; without it, it begins with the oldest event that is kept, or where `after` or `newest`
    say.

    A line `progress` without an id tells how far running jobs are; a comment every 15 seconds shows that the line is
    alive; a stream ends after five minutes, and the next one goes on. It ends within half a minute of its token's
    end. With `?format=json` a page comes at once: pass its `next` as `after`.
    """
    position = await run_in_threadpool(_begin, services, federation_id, after, last_event_id, newest)
    return await _answer(services, caller, federation_id, position, limit, format, accept)


@router.get("/events", response_class=StreamingResponse, responses=_ALL)
async def all_events(
    services: Services,
    caller: Viewer,
    after: Position = None,
    newest: Newest = None,
    limit: Count = 100,
    format: Format = None,
    accept: Accept = "*/*",
    last_event_id: LastId = None,
) -> Response:
    """Look on at the whole service: events of all federations, of workers and data sets. As for one federation."""
    position = await run_in_threadpool(_begin, services, None, after, last_event_id, newest)
    return await _answer(services, caller, None, position, limit, format, accept)
