"""Deliveries over links that break: small files in one PUT, large ones and those whose PUT broke off in pieces by tus.

A resumable upload goes on where it was, after a cut link, a restart of the service, and, with a `UploadMemory`, after a
restart of this process. What counts as giving up is silence, never the time that it takes in all.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

import httpx

from client_sdk.between import is_foreign
from client_sdk.errors import (
    ApiError,
    BrokenUpload,
    NotFound,
    TooManyRequests,
    TooManyUploads,
    TransportError,
    UnexpectedAnswer,
    UploadIncomplete,
    from_response,
)
from client_sdk.staging import stage
from client_sdk.transport import CHUNK, RETRIED_STATUS, FileBody, Transport

PIECE_BYTES = 16 << 20
"""Bytes a request at most: a proxy that collects a request before it passes it on loses no more than that."""
LEAST_PIECE_BYTES = 64 << 10
"""Smaller pieces are not tried where something between takes no larger ones."""
_TUS = {"Tus-Resumable": "1.0.0"}
_GONE = frozenset({404, 410})
_NO_TUS = frozenset({404, 405, 501})
_REFUSED = frozenset({400, 404, 409, 413, 415, 422})
_TURNS = frozenset({400, 409, 423, 460})  # the service has another view of the upload: look again

OnBytes = Callable[[int, int], None]
"""Told how many bytes of how many the service has."""


def unwatched(done: int, of: int) -> None:
    """Nobody watches."""


class UploadMemory(Protocol):
    """Remembers the address of a file's upload, so that a killed process goes on with it."""

    def recall(self, digest: str) -> str | None:
        """Return the address for the file of that digest."""

    def remember_upload(self, digest: str, url: str) -> None:
        """Keep an address; there is one at a time."""

    def forget(self) -> None:
        """The upload has counted, or is gone."""


class InProcess:
    """A memory that ends with the process."""

    def __init__(self) -> None:
        self._kept: tuple[str, str] | None = None

    def recall(self, digest: str) -> str | None:
        """Return the address for the file of that digest."""
        return self._kept[1] if self._kept is not None and self._kept[0] == digest else None

    def remember_upload(self, digest: str, url: str) -> None:
        """Keep an address."""
        self._kept = (digest, url)

    def forget(self) -> None:
        """Forget it."""
        self._kept = None


@dataclass(frozen=True)
class _Piece:
    """A run of a file's bytes as a request's body."""

    path: Path
    offset: int
    length: int
    on_bytes: Callable[[int], None]

    def headers(self) -> dict[str, str]:
        return {
            **_TUS,
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(self.length),
            "Upload-Offset": str(self.offset),
        }

    def chunks(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            left = self.length
            while left and (chunk := file.read(min(CHUNK, left))):
                yield chunk
                left -= len(chunk)
                self.on_bytes(self.offset + self.length - left)


class DeliveryOptions(TypedDict, total=False):
    """How a file may travel.

    Keys:
        direct: put it into the service's bucket and deliver it by name, where the service offers that; default: as the
            connection says.
        memory: remembers a resumable upload, so that another process can go on with it.
        on_bytes: told how many bytes of how many the service has, in a resumable upload.
    """

    direct: bool
    memory: UploadMemory | None
    on_bytes: OnBytes


class Delivery:
    """One file on its way to one address.

    Args:
        transport: the connection.
        method: PUT, or POST where something is made of it.
        path: where the file is delivered, such as ``/v1/rounds/rnd_…/update``.
        file: the file.
        params: further parameters of that request.
        options: see `DeliveryOptions`.
    """

    def __init__(
        self,
        transport: Transport,
        method: str,
        path: str,
        file: Path,
        *,
        params: dict[str, str | None] | None = None,
        **options: Unpack[DeliveryOptions],
    ):
        self._transport, self._method, self._path, self._params = transport, method, path, params or {}
        self._body, self._size, self._piece = FileBody(file), file.stat().st_size, PIECE_BYTES
        self._key = self._body.digest if method == "PUT" else uuid.uuid4().hex
        self._direct = options.get("direct", transport.connection.direct)
        self._memory = options.get("memory") or InProcess()
        self._on_bytes = options.get("on_bytes", unwatched)

    def send(self) -> httpx.Response:
        """Deliver the file and return the answer.

        Raises:
            ApiError: the service refused it.
            TransportError: no answer, or nothing got through for many tries.
        """
        staged = stage(self._transport, self._body) if self._direct else None
        if staged is not None:
            with suppress(NotFound):  # it lay there too long, and was swept
                return self._transport.request(self._method, self._path, params={**self._params, "staged": staged})
        if self._size < self._transport.connection.resumable_bytes and self._memory.recall(self._body.digest) is None:
            try:
                return self._whole(resend=False)
            except BrokenUpload:
                self._transport.say(f"{self._transport.base}: the upload broke off; going on in pieces")
            except ApiError as error:
                if not _is_limit_between(error) or not self._smaller(self._size):
                    raise
                self._transport.say(f"{error.detail}; going on in pieces of {self._piece:,} bytes")
        try:
            return self._by_name()
        except _NoTus:
            return self._whole(resend=True)
        except (UploadIncomplete, _Swept):  # it expired, or an older state of the service came back
            self._memory.forget()
            return self._whole(resend=True)

    def _by_name(self) -> httpx.Response:
        """Have the service hold all bytes, then name them."""
        url = self._complete()
        headers = {"Repr-Digest": self._body.headers()["Content-Digest"]}
        upload = url.rstrip("/").rpartition("/")[2]
        params = {**self._params, "upload": upload}
        try:
            response = self._transport.request(self._method, self._path, params=params, headers=headers, key=self._key)
        except ApiError as error:
            if error.kind and error.status in _REFUSED:
                self._memory.forget()
            if error.kind == "not-found" and upload in error.detail:
                raise _Swept from error
            raise
        self._memory.forget()
        return response

    def _whole(self, resend: bool) -> httpx.Response:
        return self._transport.request(
            self._method, self._path, params=self._params, body=self._body, key=self._key, resend=resend
        )

    def _complete(self) -> str:
        """Have all bytes at the service; return the upload's address."""
        url, offset, failures, cut = self._memory.recall(self._body.digest), 0, 0, False
        while True:
            url = url or self._create()
            known = self._look(url)
            if known is None and failures <= self._transport.retries:  # expired, or an older state of the service
                self._memory.forget()
                url, failures = None, failures + 1
                continue
            if known is None:
                raise UnexpectedAnswer(f"{url}: uploads that were opened are not there")
            if known > offset:
                failures = 0
            elif cut:  # nothing got through: a proxy may hang up in place of a 413
                self._smaller(min(self._piece, self._size - known))
            offset, cut = known, False
            self._on_bytes(offset, self._size)
            while offset < self._size:
                try:
                    offset, failures = self._patch(url, offset), 0
                except (TransportError, ApiError) as error:
                    failures, cut = failures + 1, isinstance(error, TransportError)
                    if failures > self._transport.retries or not self._can_go_on(error, offset):
                        raise
                    self._transport.say(f"{self._transport.base}: the upload stopped at {offset}; going on")
                    self._transport.pause(failures - 1)
                    break
            else:
                return url

    def _create(self) -> str:
        headers = {**_TUS, "Upload-Length": str(self._size)}
        key = uuid.uuid4().hex
        for retried in (RETRIED_STATUS - {429}, RETRIED_STATUS):
            try:
                answer = self._transport.request("POST", "/v1/uploads", headers=headers, key=key, retried=retried)
            except TooManyUploads as error:
                self._make_room(error)
            except TooManyRequests:
                continue
            except ApiError as error:
                if error.status in _NO_TUS:
                    raise _NoTus from error
                raise
            else:
                return self._opened(answer)
        return self._opened(self._transport.request("POST", "/v1/uploads", headers=headers, key=key))

    def _opened(self, answer: httpx.Response) -> str:
        url = str(answer.headers.get("Location", ""))
        if not url:
            raise UnexpectedAnswer("POST /v1/uploads: the answer has no Location")
        if "://" not in url and not url.startswith("/"):  # relative to what was asked
            url = str(answer.request.url.join(url))
        self._memory.remember_upload(self._body.digest, url)
        return url

    def _make_room(self, error: TooManyUploads) -> None:
        """Remove the oldest of this token's uploads: nobody remembers them any more, or they would be gone on with."""
        oldest = next(iter(error.members.get("open") or ()), None)
        if oldest is None:
            raise error
        self._transport.request("DELETE", f"/v1/uploads/{oldest['id']}", headers=_TUS, accept=_GONE)

    def _look(self, url: str) -> int | None:
        """Return how far the upload is, or None if it is gone."""
        answer = self._transport.request("HEAD", url, headers=_TUS, accept=_GONE)
        if answer.status_code in _GONE and is_foreign(answer):
            raise from_response(answer)
        if answer.status_code in _GONE:
            return None
        return _offset(answer)

    def _patch(self, url: str, offset: int) -> int:
        length = min(self._piece, self._size - offset)
        piece = _Piece(self._body.path, offset, length, lambda done: self._on_bytes(done, self._size))
        return _offset(self._transport.request("PATCH", url, body=piece, retry=False))

    def _can_go_on(self, error: TransportError | ApiError, offset: int) -> bool:
        """Whether to look how far the upload is, and send the rest; in smaller pieces where this one was too large."""
        if isinstance(error, TransportError):
            return True
        if _is_limit_between(error):
            return self._smaller(min(self._piece, self._size - offset))
        if not error.kind:
            return error.status in RETRIED_STATUS
        return error.status in _TURNS or error.status in RETRIED_STATUS or error.status in _GONE

    def _smaller(self, sent: int) -> bool:
        """Go on in pieces of half of what was too large; return whether there are smaller ones to try."""
        half = min(self._piece, sent // 2)
        if half < LEAST_PIECE_BYTES:
            return False
        self._piece = half
        return True


class _NoTus(Exception):
    """The service speaks no tus."""


class _Swept(Exception):
    """The upload was removed between its last byte and its delivery."""


def _is_limit_between(error: Exception) -> bool:
    """Whether a proxy takes no body of this size; the service's own 413 has a kind."""
    return isinstance(error, ApiError) and error.status == 413 and not error.kind


def _offset(answer: httpx.Response) -> int:
    text = answer.headers.get("Upload-Offset", "")
    if not text.isdecimal():
        raise UnexpectedAnswer(f"{answer.request.method} {answer.request.url.path}: the answer has no Upload-Offset")
    return int(text)
