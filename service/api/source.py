"""Where a delivery's bytes come from: the request's body, a resumable upload (`?upload=`), or the bucket (`?staged=`).

What is named is spent by the first delivery that counts or is refused for good; the same one again gets its answer.
"""

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from contract.json_text import read_json
from contract.wire.problems import KINDS
from service.api.deps import Anyone, Services
from service.api.services import Services as Parts
from service.api.telemetry import ACCOUNT
from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.operations.store import reservations, traffic, uploads

_FINAL = (409, 413, 415, 422)
_PROBLEM, _RESERVED = "problem", "potstill.reserved"
_UNDECIDED = ("upload-incomplete", "upload-locked", "upload-offset")
Found = TypeVar("Found")


class Answered(Exception):
    """What is named has counted already, by the very same request: it gets the same answer."""

    def __init__(self, answer: dict[str, Any]):
        super().__init__()
        self.answer = answer


def answer_again(request: Request, error: Exception) -> Response:
    """Return the first answer."""
    assert isinstance(error, Answered)
    return JSONResponse(error.answer, status_code=200 if request.method == "PUT" else 201)


@dataclass
class Source:
    """A request that delivers a file, and who sends it; `reserved` bytes of the disk are other uploads'.

    Of a device that, and whose bytes come, is read with what it is let in by (`admit`).
    """

    request: Request
    services: Parts
    owner: str
    upload: str | None
    staged: str | None = None
    reserved: int = 0

    @property
    def named(self) -> str | None:
        """What is delivered instead of a body."""
        return self.upload if self.upload is not None else self.staged

    @property
    def target(self) -> str:
        """What the file is meant for, as one short text."""
        query = "&".join(sorted(f"{name}={value}" for name, value in self.request.query_params.multi_items()))
        text = f"{self.request.method} {self.request.url.path}?{query}"
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()

    async def admit(self, caller: Principal, act: Callable[[Session], Found]) -> Found:
        """Return what `act` reads to let a device's file in before a byte of it is read.

        Raises:
            DomainError: what `act` refuses it for; it is noted whose bytes come all the same.
        """

        def read(session: Session) -> Found:
            self.reserved = _counted(session, self.request, caller, _item(self.request))
            return act(session)

        return await self.services.together.read(read)


def _item(request: Request) -> str:
    return request.url.path.rpartition("/")[2]


def answered(source: Source) -> dict[str, Any] | None:
    """Return what this very delivery was answered before, if what it names has counted.

    Raises:
        DomainError: it was refused for good, and that was the reason.
    """
    with source.services.store.read() as session:
        found = uploads.answered(session, source.owner, source.named or "", source.target)
    if found is not None and _PROBLEM in found:
        problem = found[_PROBLEM]
        raise DomainError(problem["kind"], problem["detail"], **problem["members"])
    return found


async def count_for(request: Request, services: Parts, caller: Principal, item: str) -> int:
    """Note whose bytes a request brings; return how many bytes open uploads hold room for."""
    return await services.together.read(lambda session: _counted(session, request, caller, item))


def _counted(session: Session, request: Request, caller: Principal, item: str) -> int:
    if _RESERVED not in session.info:  # once for all who share the session
        session.info[_RESERVED] = reservations.missing(session)
    request.scope[ACCOUNT] = traffic.of_upload(session, caller, item)
    return int(session.info[_RESERVED])


def _is_final(error: DomainError) -> bool:
    final = KINDS[error.kind].status in _FINAL or error.kind == "digest-mismatch"
    return final and error.kind not in _UNDECIDED


def _refuse(source: Source, error: DomainError) -> None:
    """Spend what was refused for good; whoever delivers it too hears the same."""
    members = read_json(json.dumps(error.members, default=str))
    answer = {_PROBLEM: {"kind": error.kind, "detail": error.detail, "members": members}}
    if source.upload is not None:
        with source.services.store.write() as session:
            uploads.refuse(session, source.owner, source.upload, source.target, answer)
        return
    staging, name = source.services.blobs.links.staging(), source.staged or ""
    if staging is None:
        return
    with contextlib.suppress(FileNotFoundError, DomainError):  # it is not there, or the bucket is away: the sweep's
        size = staging.size(source.owner, name)
        with source.services.store.write() as session:
            uploads.note(session, source.owner, name, source.target, size, answer, uploads.REFUSED_KEPT)
        staging.drop(source.owner, name)


async def get_source(
    request: Request,
    services: Services,
    principal: Anyone,
    upload: Annotated[
        str | None,
        Query(max_length=64, description="id of a finished resumable upload, instead of a body (`/v1/uploads`)"),
    ] = None,
    staged: Annotated[
        str | None,
        Query(max_length=64, description="name of a file that was put into the bucket, instead of a body"),
    ] = None,
) -> AsyncIterator[Source]:
    """Give the route its source; when what came is refused for good, what was named goes with it."""
    reserved = 0 if principal.role == "device" else await count_for(request, services, principal, _item(request))
    source = Source(request, services, principal.id, upload, staged, reserved)
    if source.named is not None:
        answer = await run_in_threadpool(answered, source)
        if answer is not None:
            raise Answered(answer)
    try:
        yield source
    except DomainError as error:
        if source.named is not None and _is_final(error):
            answer = await run_in_threadpool(answered, source)
            if answer is not None:  # the same delivery by another connection was faster
                raise Answered(answer) from error
            await run_in_threadpool(_refuse, source, error)
        raise


Delivery = Annotated[Source, Depends(get_source)]
