"""Downloads that go on where they broke off and are checked against their digest."""

import hashlib
import os
from pathlib import Path

from client_sdk.errors import CorruptDownload, TransportError, from_response
from client_sdk.transport import CHUNK, Transport
from contract.outputs import check_place
from contract.private import private


def file_digest(path: Path) -> str:
    """Return ``sha256-<hex>`` of a file."""
    with path.open("rb") as file:
        return f"sha256-{hashlib.file_digest(file, 'sha256').hexdigest()}"


def download(transport: Transport, url: str, target: Path, *, digest: str | None = None) -> str:
    """Fetch `url` into `target`, which appears only when whole and checked. Return its digest.

    A file that is there already and matches is not fetched again. A broken transfer goes on from the last byte
    (``Range`` with ``If-Range``), in this call or, when `digest` is given, in a later one.

    Args:
        digest: ``sha256-<hex>``; without it the answer's ``ETag`` is taken.

    Raises:
        ApiError: the service refused.
        TransportError: no progress in spite of retries.
        CorruptDownload: the bytes are wrong, twice.
        FileExistsError: `target` is no file: a device, a pipe, a folder.
    """
    check_place(target)
    have = file_digest(target) if target.exists() else None
    if have is not None and have == digest:
        return have
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{(digest or 'sha256-new')[7:19]}.part")
    if digest is None:
        partial.unlink(missing_ok=True)  # of unknown origin
    for last in (False, True):
        expected = _fetch(transport, url, partial, digest, have)
        if expected is None:
            return have or ""  # 304: `target` is the newest
        actual = file_digest(partial)
        if actual == expected or not expected:
            os.replace(partial, target)
            return actual
        partial.unlink()
        if last:
            raise CorruptDownload(f"{url}: received {actual}, expected {expected}; try again later")
    raise AssertionError("unreachable: the second try returns or raises")


def _fetch(transport: Transport, url: str, partial: Path, digest: str | None, have: str | None) -> str | None:
    """Fill `partial`; return the digest that it should have (``""``: nobody says), or None if `have` is still right."""
    idle, expected = 0, digest
    while True:
        opened = False
        before = partial.stat().st_size if partial.exists() else 0
        headers = {"Accept-Encoding": "identity"}
        if before and expected:
            headers |= {"Range": f"bytes={before}-", "If-Range": f'"{expected}"'}
        elif have:
            headers["If-None-Match"] = f'"{have}"'
        try:
            with transport.stream("GET", url, headers=headers, accept=frozenset({304, 416})) as response:
                opened = True
                if response.status_code == 304:
                    return None
                if response.status_code == 416:  # it is whole, or longer than the file
                    if expected and file_digest(partial) == expected:
                        return expected
                    partial.unlink(missing_ok=True)
                    raise TransportError(f"{url}: the partial file does not fit")
                if "text/html" in response.headers.get("Content-Type", ""):  # a login page, say
                    response.read()
                    raise from_response(response)
                expected = digest or response.headers.get("ETag", "").removeprefix("W/").strip('"')
                with open(partial, "ab" if response.status_code == 206 else "wb", opener=private) as file:
                    for piece in response.iter_bytes(CHUNK):
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
            return expected or ""
        except TransportError:
            after = partial.stat().st_size if partial.exists() else 0
            idle = 0 if after > before else idle + 1
            if not opened or idle > transport.retries:  # opening has had its own retries
                raise
            transport.pause(idle)
