"""A piece of a resumable upload, from the socket to the disk.

Every few mebibytes what came is put on the disk and then noted in the database; a link that is cut, or a process that
is killed, costs what came after that. A piece with a checksum counts as a whole or not at all.
"""

import base64
import binascii
import hashlib
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from service.api.bodies import Gone, Patience, pour
from service.api.intake import lost
from service.api.lease import holding
from service.api.problems import UNREAD
from service.api.services import Services
from service.domain.errors import DomainError, invalid_field
from service.infra.parts import PartsBusy, PartsLost, PartWriter
from service.operations.store import reservations, uploads
from service.operations.store.uploads import Held
from service.persistence.tables import UploadRow

PIECE = "application/offset+octet-stream"
ALGORITHMS = ("sha256", "sha1")
STEP_BYTES = 8 << 20
MOST_NOTES = 4096
_KEPT = ("incomplete-body", "upload-locked", "too-many-requests")  # what came before is kept


class Checksum:
    """What a piece must hash to.

    Args:
        text: `Upload-Checksum`: an algorithm and a digest in base64.
    """

    def __init__(self, text: str):
        name, _, digest = text.strip().partition(" ")
        if name not in ALGORITHMS:
            raise DomainError("invalid-request", f"Upload-Checksum: send {' or '.join(ALGORITHMS)}, not {name[:32]!r}")
        self._hash = hashlib.new(name, usedforsecurity=False)
        try:
            self._expected = base64.b64decode(digest, validate=True)
        except (binascii.Error, ValueError):
            self._expected = b""
        if len(self._expected) != self._hash.digest_size:
            raise DomainError("invalid-request", f"Upload-Checksum: {name} needs its digest in base64 after a blank")

    def update(self, piece: memoryview) -> None:
        """Take the next bytes."""
        self._hash.update(piece)

    def check(self) -> None:
        """Refuse a piece that is another one.

        Raises:
            DomainError: checksum-mismatch.
        """
        if self._hash.digest() != self._expected:
            raise DomainError(
                "checksum-mismatch", "the piece suffered on the way and was thrown away; send it again", field="body"
            )


def count_header(request: Request, name: str, what: str) -> int:
    """Return a header that is a number of bytes.

    Raises:
        DomainError: invalid-request, naming the header.
    """
    text = request.headers.get(name, "")
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise DomainError("invalid-request", f"{name} must be {what} in digits", field=name)
    return int(text)


def notes_header(request: Request) -> str:
    """Return Upload-Metadata: pairs of a name and a value in base64, with commas between them.

    Raises:
        DomainError: invalid-field.
    """
    text = request.headers.get("Upload-Metadata", "").strip()
    if len(text) > MOST_NOTES:
        raise invalid_field("Upload-Metadata", f"has {len(text)} characters, {MOST_NOTES} are taken")
    names = set()
    for pair in text.split(",") if text else ():
        name, _, value = pair.strip().partition(" ")
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            name = ""
        if not name or not name.isascii() or name in names:
            raise invalid_field("Upload-Metadata", "must be pairs 'name base64' with commas between, each name once")
        names.add(name)
    return text


def has_piece(request: Request) -> bool:
    """Whether a request brings bytes of an upload.

    Raises:
        DomainError: unsupported-media-type, for a body of another kind.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media == PIECE:
        return True
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        request.scope[UNREAD] = True
        raise DomainError("unsupported-media-type", f"send a piece of an upload as {PIECE}, not {media[:64]!r}")
    return False


class _Pen:
    """Writes a piece in a thread: to the store, and its progress to the database."""

    def __init__(self, services: Services, held: Held, checksum: Checksum | None):
        self._services, self._held, self._checksum = services, held, checksum
        self.offset = self._saved = held.offset
        self._writer: PartWriter
        try:
            self._writer = services.parts.writer(held.id, held.offset, held.parts, held.holder)
        except PartsBusy:
            raise uploads.locked() from None
        except PartsLost:
            raise lost(services, held) from None

    def write(self, piece: memoryview) -> None:
        self._writer.write(piece)
        self.offset += len(piece)
        if self._checksum is not None:
            self._checksum.update(piece)
        elif self.offset - self._saved >= STEP_BYTES:
            self.save()

    def save(self) -> UploadRow:
        """Put everything on the disk, then say in the database how far the upload is."""
        self._writer.flush()
        with self._services.store.write() as session:
            row = uploads.advance(session, self._held, self.offset, self._writer.parts)
        self._saved = self.offset
        return row

    def finish(self) -> UploadRow:
        if self._checksum is not None:
            self._checksum.check()
        return self.save()

    def break_off(self) -> None:
        """Keep what came, unless only the whole would count."""
        if self._checksum is None and self.offset > self._saved:
            self.save()

    def close(self) -> None:
        self._writer.close()


def _check_room(services: Services, held: Held) -> None:
    with services.store.read() as session:
        rest, free = held.length - held.offset, services.blobs.scratch.free_bytes()
        reservations.check_room(session, held.id, held.expires_at, rest, services.settings, free)


async def append(request: Request, services: Services, owner: str, upload_id: str, offset: int) -> UploadRow:
    """Take the request's body as the bytes of an upload from `offset` on; return the upload as it is then.

    Raises:
        DomainError: not-found, upload-locked, upload-offset, too-large, checksum-mismatch, incomplete-body,
            storage-full, too-many-requests.
        Gone: the client hung up; what came is kept.
    """
    request.scope[UNREAD] = True
    text = request.headers.get("Upload-Checksum")
    checksum = None if text is None else Checksum(text)
    patience = Patience()
    async with holding(services, owner, upload_id, offset, patience.end) as held:
        left = held.length - offset
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > left:
            raise _too_long(left, int(length))
        await run_in_threadpool(_check_room, services, held)
        pen = await run_in_threadpool(_Pen, services, held, checksum)
        try:
            await pour(request, left, patience, pen.write, tail=True)
            return await run_in_threadpool(pen.finish)
        except (Gone, DomainError) as error:
            if isinstance(error, Gone) or error.kind in _KEPT:
                await run_in_threadpool(pen.break_off)
            raise
        finally:
            await run_in_threadpool(pen.close)


def _too_long(left: int, actual: int) -> DomainError:
    members: dict[str, Any] = {"expected": left, "actual": actual}
    return DomainError("too-large", f"{left} bytes are missing to Upload-Length, {actual} would come", **members)
