"""Blobs in an S3-compatible bucket, through boto3; local are only files in the making and bounded copies.

A blob is put under its digest in one request, or in parts that become one object at their completion: it is never
visible in part. Every request carries the SHA-256 of its bytes, which the store checks, and
the parts of a large file are hashed together while they are read: other bytes than the digest's are never completed.
"""

import base64
import contextlib
import hashlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, Any

from contract.private import private
from contract.tensors import Header
from contract.tensors.header import header_length, parse_header
from service.config import Settings
from service.infra import clock
from service.infra.blob_cache import DiskCache
from service.infra.blob_checks import Checked
from service.infra.blobs import (
    BLOCK,
    QUARANTINE_FILES,
    QUARANTINE_SECONDS,
    BlobFault,
    Blobs,
    Identity,
    Report,
    Staging,
    digest_at,
    hex_of,
    unreported,
)
from service.infra.bucket import Bucket, NotThere
from service.infra.bucket_parts import BucketParts
from service.infra.bucket_staging import BucketStaging
from service.infra.bucket_states import BucketStates
from service.infra.scratch import Scratch

log = logging.getLogger(__name__)
PART_BYTES = 16 * BLOCK
_MOST_PARTS = 10_000
PRESIGNED_SECONDS = 900
"""How long a presigned address is valid."""
_HEADERS_KEPT = 64


_QUARANTINE = "quarantine/"
_MOST_COPIED = 5 << 30
"""Bytes of the largest object that a store copies in one request."""


def _base64(sha256: bytes) -> str:
    return base64.b64encode(sha256).decode()


def _identity(head: dict[str, Any]) -> Identity:
    return (head["ETag"], head["ContentLength"], head["LastModified"])


class WrongBytes(Exception):
    """A file that is about to become a blob, and whose bytes are no longer those of its digest."""


def open_bucket(settings: Settings, part_bytes: int = PART_BYTES) -> Blobs:
    """Return the blobs of the bucket that the settings name, with this machine's copies."""
    bucket, folder = Bucket(settings), settings.cache_dir
    store, scratch = BucketStore(bucket, part_bytes), Scratch(folder / "tmp", settings.cache_bytes)
    cache = BucketCache(store, DiskCache(folder, settings.cache_bytes, scratch.temp))
    links = BucketLinks(bucket, PRESIGNED_SECONDS if settings.presign else 0)
    states = BucketStates(bucket, scratch.root)
    return Blobs(store, cache, scratch, states, links, partial(BucketParts, bucket, scratch))


def _key(digest: str) -> str:
    return f"blobs/{hex_of(digest)}"


class BucketStore:
    """A bucket of blobs."""

    def __init__(self, bucket: Bucket, part_bytes: int = PART_BYTES):
        self._bucket, self._part_bytes = bucket, part_bytes
        self._headers: OrderedDict[str, Header] = OrderedDict()
        self._lock = threading.Lock()
        self._checked = Checked()

    def prepare(self, temp: Path, digest: str) -> None:
        """Put a file under its digest, also where one is: that makes it young, and no collection takes it away now."""
        size = temp.stat().st_size
        with open(temp, "rb") as file:
            if size <= self._part_bytes:
                self._bucket.put(_key(digest), file, bytes.fromhex(hex_of(digest)))
            else:
                self._put_in_parts(file, size, digest)

    def _put_in_parts(self, file: IO[bytes], size: int, digest: str) -> None:
        key, length = _key(digest), max(self._part_bytes, -(-size // _MOST_PARTS))
        upload = self._bucket.call("create_multipart_upload", key, ChecksumAlgorithm="SHA256")["UploadId"]
        try:
            parts: list[dict[str, Any]] = []
            whole = hashlib.sha256()
            while block := file.read(length):
                whole.update(block)
                checksum = _base64(hashlib.sha256(block).digest())
                number = {"PartNumber": len(parts) + 1}
                sent = self._bucket.call(
                    "upload_part", key, UploadId=upload, Body=block, ChecksumSHA256=checksum, **number
                )
                parts.append({**number, "ETag": sent["ETag"], "ChecksumSHA256": checksum})
            if whole.hexdigest() != hex_of(digest):
                raise WrongBytes(f"the file is not {digest} any more")
            self._bucket.call("complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": parts})
        except BaseException:
            with contextlib.suppress(Exception):  # the sweep aborts it otherwise
                self._bucket.call("abort_multipart_upload", key, UploadId=upload)
            raise

    def keep(self, temp: Path, digest: str) -> None:
        """Make sure that a blob is there: it was put before, unless a collection came in between."""
        try:
            if self.size(digest) == temp.stat().st_size:
                return
        except FileNotFoundError:
            pass
        self.prepare(temp, digest)

    def name(self, temp: Path, digest: str) -> None:
        """Do the same: a bucket has nothing to put on a disk."""
        self.keep(temp, digest)

    def settle(self, digests: Collection[str]) -> None:
        """Do nothing: what a bucket has taken is there."""

    def delete(self, digest: str) -> None:
        """Remove a blob, also one that was set aside; one that is not there does no harm."""
        self._bucket.call("delete_object", _key(digest))
        self._bucket.call("delete_object", f"{_QUARANTINE}{hex_of(digest)}")

    def removing(self) -> contextlib.AbstractContextManager[bool]:
        """Allow it: a bucket's backup is its own versioning."""
        return contextlib.nullcontext(True)

    def size(self, digest: str) -> int:
        """Return the size in bytes."""
        return int(self._bucket.call("head_object", _key(digest))["ContentLength"])

    def read(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` up to, without, `end`; a transfer that breaks off goes on where it was."""
        return self._bucket.read(_key(digest), start, end)

    def verify(self, digest: str, anew: bool = False) -> None:
        """See that a blob is there and whole.

        Unless it is to be read `anew`, a store that has checked the SHA-256 of the whole object when it came, and says
        so, is believed; another object is read once. A large one came in parts, whose sums say nothing of the digest.
        """
        try:
            head = self._bucket.call("head_object", _key(digest), ChecksumMode="ENABLED")
        except NotThere:
            raise BlobFault(digest, "missing") from None
        told = not anew and head.get("ChecksumSHA256") == _base64(bytes.fromhex(hex_of(digest)))
        self._checked.see(digest, _identity(head), lambda: digest if told else self._read_digest(digest), anew)

    def _read_digest(self, digest: str) -> str:
        found = hashlib.sha256()
        for block in self._bucket.read(_key(digest), 0, None):
            found.update(block)
        return f"sha256-{found.hexdigest()}"

    def set_aside(self, fault: BlobFault) -> bool:
        """Move a damaged blob aside, unless another object has taken its place; a huge one goes for good."""
        key = _key(fault.digest)
        with contextlib.suppress(NotThere):
            head = self._bucket.call("head_object", key)
            if _identity(head) != fault.seen:
                return False
            if head["ContentLength"] <= _MOST_COPIED:
                self._bucket.copy(key, f"{_QUARANTINE}{hex_of(fault.digest)}")
            self._bucket.call("delete_object", key)
            with self._lock:
                self._headers.pop(fault.digest, None)
            self._bound_quarantine()
            return True
        return False

    def _bound_quarantine(self) -> int:
        """Remove what has been set aside for long, and the oldest of too many; return how many."""
        kept = sorted(self._bucket.listing(_QUARANTINE), key=lambda item: item["LastModified"], reverse=True)
        newest = clock.patient(clock.now(), clock.A_DAY) - timedelta(seconds=QUARANTINE_SECONDS)
        gone = [item for number, item in enumerate(kept) if number >= QUARANTINE_FILES or item["LastModified"] < newest]
        for item in gone:
            self._bucket.call("delete_object", self._bucket.inner(item["Key"]))
        return len(gone)

    def header(self, digest: str) -> Header:
        """Return the header of a blob that is a safetensors file, after `verify`; the last are kept."""
        self.verify(digest)
        with self._lock:
            if digest in self._headers:
                self._headers.move_to_end(digest)
                return self._headers[digest]
        length = header_length(b"".join(self.read(digest, 0, 8)))
        header = parse_header(b"".join(self.read(digest, 0, 8 + length)), self.size(digest))
        with self._lock:
            self._headers[digest] = header
            while len(self._headers) > _HEADERS_KEPT:
                self._headers.popitem(last=False)
        return header

    def check(self) -> str:
        """Return which bucket answers."""
        with contextlib.suppress(NotThere):
            self._bucket.call("head_object", "potstill-readiness")
        return self._bucket.name

    def batches(self, older_than_seconds: float, size: int) -> Iterator[set[str]]:
        """Yield the digests of all blobs of some age, in batches."""
        batch: set[str] = set()
        newest = clock.patient(clock.now(), clock.A_DAY) - timedelta(seconds=older_than_seconds)
        for item in self._bucket.listing("blobs/"):
            name = item["Key"].rpartition("/")[2]
            if item["LastModified"] <= newest and len(name) == 64:
                batch.add(f"sha256-{name}")
            if len(batch) >= size:
                yield batch
                batch = set()
        if batch:
            yield batch

    def sweep(self, older_than_seconds: float) -> int:
        """Remove what was begun in the bucket and not finished; return how many."""
        removed = self._bound_quarantine()
        newest = clock.patient(clock.now(), clock.A_DAY) - timedelta(seconds=older_than_seconds)
        for item in self._bucket.listing("staging/"):
            if item["LastModified"] <= newest:
                self._bucket.call("delete_object", self._bucket.inner(item["Key"]))
                removed += 1
        for upload in self._bucket.unfinished():
            if upload["Initiated"] <= newest:
                with contextlib.suppress(NotThere):
                    key = self._bucket.inner(upload["Key"])
                    self._bucket.call("abort_multipart_upload", key, UploadId=upload["UploadId"])
                    removed += 1
        return removed


class BucketCache:
    """This machine's copies of a bucket's blobs."""

    def __init__(self, store: BucketStore, disk: DiskCache):
        self._store, self._disk = store, disk
        self.path, self.batches, self.forget = disk.path, disk.batches, disk.forget

    def digest_at(self, path: Path) -> str | None:
        """Return the digest of the blob whose `path` this is, or None for any other path."""
        return digest_at(path, self.path)

    @contextlib.contextmanager
    def hold(self, digests: Iterable[str], report: Report = unreported) -> Iterator[None]:
        """Have copies of blobs for the length of the block."""
        wanted = sorted(set(digests))
        with contextlib.ExitStack() as held:
            for number, digest in enumerate(wanted):
                report(number, len(wanted))
                try:
                    copy = self._disk.held(digest, partial(self._store.size, digest), self._filler(digest))
                    held.enter_context(copy)
                except NotThere:
                    raise BlobFault(digest, "missing") from None
            yield

    def _filler(self, digest: str) -> Any:
        def fill(path: Path) -> int:
            found, size = hashlib.sha256(), 0
            with open(path, "xb", opener=private) as file:
                for block in self._store.read(digest):
                    found.update(block)
                    size += file.write(block)
                file.flush()
                os.fsync(file.fileno())
            if found.hexdigest() != hex_of(digest):
                raise BlobFault(digest, "damaged")
            return size

        return fill

    def drop(self, digest: str) -> None:
        """Remove this machine's copy, which is damaged, so that the next job fetches it."""
        self.path(digest).unlink(missing_ok=True)

    def adopt(self, temp: Path, digest: str) -> None:
        """Use a file that was kept as this machine's copy."""
        with contextlib.suppress(FileNotFoundError):  # two names had one content
            self._disk.adopt(temp, digest)


class BucketLinks:
    """Presigned addresses, for `seconds`; 0 where the settings allow none."""

    def __init__(self, bucket: Bucket, seconds: int):
        self._bucket, self._seconds = bucket, seconds

    def file(self, digest: str) -> Path | None:
        """Return None: a blob is no local file, and an API needs no copies."""
        return None

    def link(self, digest: str) -> str | None:
        """Return a presigned address, where the settings allow it."""
        if not self._seconds:
            return None
        return self._bucket.sign("get_object", _key(digest), self._seconds)

    def staging(self) -> Staging | None:
        """Return the place where devices may put files by themselves, where the settings allow it."""
        return BucketStaging(self._bucket, self._seconds) if self._seconds else None
