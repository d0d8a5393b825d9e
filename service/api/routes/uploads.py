"""Resumable uploads by the tus 1.0 protocol (https://tus.io/protocols/resumable-upload)."""

import asyncio
import time
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from service.api import resumable
from service.api.deps import IdempotencyKey, Services, Uploader
from service.api.problems import TUS_VERSION, documented
from service.api.routing import router_of
from service.api.services import Services as Parts
from service.api.source import count_for
from service.api.under import address
from service.domain.errors import DomainError
from service.operations.ledger.idempotency import once
from service.operations.store import uploads

router = router_of("/v1/uploads", tag="uploads")
UploadId = Annotated[str, Path(max_length=64, examples=["upl_01…"])]
_POLL_SECONDS = 0.1
_ONE = documented("invalid-request", "unauthorized", "forbidden", "not-found", "tus-version")
_PIECE: dict[str, Any] = {
    "requestBody": {
        "required": False,
        "content": {resumable.PIECE: {"schema": {"type": "string", "format": "binary"}}},
        "description": "bytes of the file, from Upload-Offset on",
    }
}
_OFFSET = {"description": "bytes that are here for good", "schema": {"type": "integer"}}
_EXPIRES = {"description": "when the upload is removed if nothing comes", "schema": {"type": "string"}}


def _headers(**names: Any) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in names.items()}


def speaks_tus(
    version: Annotated[
        str | None, Header(alias="Tus-Resumable", max_length=32, examples=[TUS_VERSION], description="version of tus")
    ] = None,
) -> None:
    """Refuse another version of the protocol."""
    if version != TUS_VERSION:
        raise DomainError("tus-version", f"send Tus-Resumable: {TUS_VERSION}", expected=TUS_VERSION, actual=version)


Tus = Annotated[None, Depends(speaks_tus)]


def _date(moment: datetime) -> str:
    return format_datetime(moment.astimezone(UTC), usegmt=True)


@router.options(
    "",
    status_code=204,
    response_class=Response,
    responses={204: {"description": "the protocol's version, extensions and limits are in the headers"}},
)
def describe_uploads(services: Services) -> Response:
    """Tell what of tus is spoken here: version, extensions, checksums, and the largest upload."""
    headers = {
        "Tus-Version": TUS_VERSION,
        "Tus-Extension": "creation,creation-with-upload,checksum,expiration,termination",
        "Tus-Max-Size": str(services.settings.max_upload_bytes),
        "Tus-Checksum-Algorithm": ",".join(resumable.ALGORITHMS),
    }
    return Response(status_code=204, headers=headers)


def _create(services: Parts, owner: str, key: str | None, length: int, notes: str) -> tuple[str, str]:
    """Return the id and the expiry of an upload; the same key and length get the same one again."""
    free = services.blobs.scratch.free_bytes()
    with services.store.write() as session:

        def make() -> dict[str, Any]:
            return {"id": uploads.create(session, owner, length, notes, services.settings, free).id}

        answer = once(session, owner, key, f"upload {length} {notes}", make)
        row = uploads.find(session, owner, answer["id"])
        return row.id, _date(row.expires_at)


@router.post(
    "",
    status_code=201,
    response_class=Response,
    openapi_extra=_PIECE,
    responses=documented(
        "invalid-request",
        "incomplete-body",
        "unauthorized",
        "forbidden",
        "not-found",
        "upload-locked",
        "idempotency-conflict",
        "upload-offset",
        "tus-version",
        "too-large",
        "unsupported-media-type",
        "invalid-field",
        "too-many-uploads",
        "checksum-mismatch",
        "storage-full",
    )
    | {
        201: {
            "description": "the upload is open; Location is its address",
            "headers": _headers(
                Location={"description": "where to PATCH, relative to this address", "schema": {"type": "string"}},
                Upload_Offset=_OFFSET,
                Upload_Expires=_EXPIRES,
            ),
        }
    },
)
async def create_upload(
    request: Request,
    services: Services,
    caller: Uploader,
    tus: Tus,
    length: Annotated[
        str | None, Header(alias="Upload-Length", max_length=32, examples=["104857600"], description="bytes in all")
    ] = None,
    defer: Annotated[str | None, Header(alias="Upload-Defer-Length", max_length=32, description="not taken")] = None,
    notes: Annotated[
        str | None, Header(alias="Upload-Metadata", max_length=resumable.MOST_NOTES, description="pairs 'name base64'")
    ] = None,
    key: IdempotencyKey = None,
) -> Response:
    """Open a resumable upload of `Upload-Length` bytes; send them with PATCH to the answer's `Location`, and name the
    finished upload in `PUT /v1/rounds/{round}/update?upload=<id>` (or where else a body is delivered).

    A body of type `application/offset+octet-stream` may bring the first bytes.
    """
    if defer is not None or "upload-concat" in request.headers:
        detail = "Upload-Defer-Length and Upload-Concat are not taken; send Upload-Length, the bytes of the whole file"
        raise DomainError("invalid-request", detail, field="Upload-Length")
    size = resumable.count_header(request, "Upload-Length", "the number of bytes of the whole file")
    text, piece = resumable.notes_header(request), resumable.has_piece(request)
    upload_id, expires = await run_in_threadpool(_create, services, caller.id, key, size, text)
    headers = {"Location": address(request.scope, f"uploads/{upload_id}"), "Upload-Expires": expires}
    if piece:
        await count_for(request, services, caller, "upload")
        row = await resumable.append(request, services, caller.id, upload_id, 0)
        headers |= {"Upload-Offset": str(row.offset), "Upload-Expires": _date(row.expires_at)}
    return Response(status_code=201, headers=headers)


def _ask_for(services: Parts, owner: str, upload_id: str) -> None:
    with services.store.write() as session:
        uploads.ask_for(session, owner, upload_id)


def _look(services: Parts, owner: str, upload_id: str) -> tuple[bool, dict[str, str]]:
    with services.store.read() as session:
        row = uploads.find(session, owner, upload_id)
        headers = {
            "Upload-Offset": str(row.offset),
            "Upload-Length": str(row.length),
            "Upload-Expires": _date(row.expires_at),
        }
        return uploads.is_held(row), headers | ({"Upload-Metadata": row.notes} if row.notes else {})


@router.head(
    "/{upload_id}",
    response_class=Response,
    responses=_ONE
    | documented("upload-locked")
    | {
        200: {
            "description": "how far the upload is",
            "headers": _headers(
                Upload_Offset=_OFFSET,
                Upload_Length={"description": "bytes in all", "schema": {"type": "integer"}},
                Upload_Expires=_EXPIRES,
            ),
        }
    },
)
async def show_upload(upload_id: UploadId, services: Services, caller: Uploader, tus: Tus) -> Response:
    """Tell how far an upload is: go on from `Upload-Offset`.

    A request of yours that still sends to it, over a link that may be dead, is ended first.
    """
    held, headers = await run_in_threadpool(_look, services, caller.id, upload_id)
    end = time.monotonic() + uploads.LEASE.total_seconds() + 1
    if held:
        await run_in_threadpool(_ask_for, services, caller.id, upload_id)
    while held:
        if time.monotonic() > end:
            raise uploads.locked()
        await asyncio.sleep(_POLL_SECONDS)
        held, headers = await run_in_threadpool(_look, services, caller.id, upload_id)
    return Response(headers=headers | {"Cache-Control": "no-store"})


@router.patch(
    "/{upload_id}",
    status_code=204,
    response_class=Response,
    openapi_extra=_PIECE,
    responses=_ONE
    | documented(
        "incomplete-body",
        "upload-offset",
        "too-large",
        "unsupported-media-type",
        "upload-locked",
        "checksum-mismatch",
        "storage-full",
    )
    | {
        204: {
            "description": "the piece is on the disk",
            "headers": _headers(Upload_Offset=_OFFSET, Upload_Expires=_EXPIRES),
        }
    },
)
async def append_to_upload(
    upload_id: UploadId,
    request: Request,
    services: Services,
    caller: Uploader,
    tus: Tus,
    offset: Annotated[
        str | None, Header(alias="Upload-Offset", max_length=32, examples=["0"], description="where the piece begins")
    ] = None,
    checksum: Annotated[
        str | None,
        Header(alias="Upload-Checksum", max_length=128, description="`sha256 <base64>` or `sha1 <base64>` of the body"),
    ] = None,
) -> Response:
    """Send the next bytes, as many as you like. They begin at `Upload-Offset`, which must be where the upload is.

    When the link breaks, what came is kept; with `Upload-Checksum` the piece counts as a whole or not at all.
    """
    begin = resumable.count_header(request, "Upload-Offset", "where the piece begins,")
    if not resumable.has_piece(request):
        raise DomainError("unsupported-media-type", f"send Content-Type: {resumable.PIECE}")
    await count_for(request, services, caller, "upload")
    row = await resumable.append(request, services, caller.id, upload_id, begin)
    return Response(
        status_code=204, headers={"Upload-Offset": str(row.offset), "Upload-Expires": _date(row.expires_at)}
    )


@router.delete("/{upload_id}", status_code=204, response_class=Response, responses=_ONE)
def delete_upload(upload_id: UploadId, services: Services, caller: Uploader, tus: Tus) -> Response:
    """End an upload and remove its bytes."""
    with services.store.write() as session:
        uploads.remove(session, caller.id, upload_id)
    return Response(status_code=204)
