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
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import IO, Any

from contract.tensors import Header
from contract.tensors.header import header_length, parse_header
from service.config import Settings
from service.infra.blob_cache import BlobCache
from service.infra.blobs import BLOCK, Report, Staging, hex_of, unreported
from service.infra.bucket import Bucket, NotThere
from service.infra.bucket_parts import BucketParts
from service.infra.bucket_staging import BucketStaging
from service.infra.bucket_states import BucketStates
from service.infra.parts import Parts
from service.infra.scratch import Scratch

log = logging.getLogger(__name__)
PART_BYTES = 16 * BLOCK
_MOST_PARTS = 10_000
_HEADERS_KEPT = 64


def _base64(sha256: bytes) -> str:
    return base64.b64encode(sha256).decode()


class WrongBytes(Exception):
    """A file or an object whose bytes are not those of its digest."""


class BlobBucket:
    """A bucket of blobs, with this machine's copies."""

    def __init__(self, settings: Settings, part_bytes: int = PART_BYTES):
        assert settings.bucket is not None
        self._bucket = Bucket(settings)
        self._presign = settings.presign_seconds if settings.presign else 0
        self._part_bytes = part_bytes
        folder = settings.resolved_cache_dir
        self._scratch = Scratch(folder / "tmp", settings.scratch_bytes)
        self._cache = BlobCache(folder, settings.cache_bytes, self._scratch.temp)
        self.temp, self.work_dir = self._scratch.temp, self._scratch.work_dir
        self.path, self.copies, self.forget = self._cache.path, self._cache.batches, self._cache.forget
        self._states = BucketStates(self._bucket, folder / "tmp")
        self.states, self.forget_states = self._states.open, self._states.forget
        self._headers: OrderedDict[str, Header] = OrderedDict()
        self._lock = threading.Lock()

    def _key(self, digest: str) -> str:
        return f"blobs/{hex_of(digest)}"

    def digest_at(self, path: Path) -> str | None:
        """Return the digest of the blob whose `path` this is, or None for any other path."""
        with contextlib.suppress(ValueError):
            digest = f"sha256-{path.name}"
            return digest if self.path(digest) == path else None
        return None

    # ----------------------------------------------------------------------------------------------------- putting
    def prepare(self, temp: Path, digest: str) -> None:
        """Put a file under its digest, also where one is: that makes it young, and no collection takes it away now."""
        size = temp.stat().st_size
        with open(temp, "rb") as file:
            if size <= self._part_bytes:
                self._bucket.put(self._key(digest), file, bytes.fromhex(hex_of(digest)))
            else:
                self._put_in_parts(file, size, digest)

    def _put_in_parts(self, file: IO[bytes], size: int, digest: str) -> None:
        key, length = self._key(digest), max(self._part_bytes, -(-size // _MOST_PARTS))
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

    def adopt(self, temp: Path, digest: str) -> None:
        """Use a file that was kept as this machine's copy."""
        with contextlib.suppress(FileNotFoundError):  # two names had one content
            self._cache.adopt(temp, digest)

    def delete(self, digest: str) -> None:
        """Remove a blob; one that is not there does no harm."""
        self._bucket.call("delete_object", self._key(digest))

    def removing(self) -> contextlib.AbstractContextManager[bool]:
        """Allow it: a bucket's backup is its own versioning."""
        return contextlib.nullcontext(True)

    # ----------------------------------------------------------------------------------------------------- reading
    @contextlib.contextmanager
    def hold(self, digests: Iterable[str], report: Report = unreported) -> Iterator[None]:
        """Have copies of blobs for the length of the block."""
        wanted = sorted(set(digests))
        with contextlib.ExitStack() as held:
            for number, digest in enumerate(wanted):
                report(number, len(wanted))
                held.enter_context(self._cache.held(digest, partial(self.size, digest), self._filler(digest)))
            yield

    def _filler(self, digest: str) -> Any:
        def fill(path: Path) -> int:
            found, size = hashlib.sha256(), 0
            with open(path, "xb") as file:
                for block in self.read(digest):
                    found.update(block)
                    size += file.write(block)
                file.flush()
                os.fsync(file.fileno())
            if found.hexdigest() != hex_of(digest):
                raise WrongBytes(f"the store gave other bytes for {digest}")
            return size

        return fill

    def file(self, digest: str) -> Path | None:
        """Return None: a blob is no local file, and an API needs no copies."""
        return None

    def size(self, digest: str) -> int:
        """Return the size in bytes."""
        return int(self._bucket.call("head_object", self._key(digest))["ContentLength"])

    def read(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` up to, without, `end`; a transfer that breaks off goes on where it was."""
        return self._bucket.read(self._key(digest), start, end)

    def header(self, digest: str) -> Header:
        """Return the header of a blob that is a safetensors file; only that travels, and the last are kept."""
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

    def link(self, digest: str) -> str | None:
        """Return a presigned address, where the settings allow it."""
        if not self._presign:
            return None
        return self._bucket.sign("get_object", self._key(digest), self._presign)

    def staging(self) -> Staging | None:
        """Return the place where devices may put files by themselves, where the settings allow it."""
        return BucketStaging(self._bucket, self._presign) if self._presign else None

    def parts(self) -> Parts:
        """Return where resumable uploads wait: in the bucket too, for every replica to go on with."""
        return BucketParts(self._bucket, self._scratch)

    # ------------------------------------------------------------------------------------------------ housekeeping
    def check(self) -> str:
        """Return which bucket answers."""
        with contextlib.suppress(NotThere):
            self._bucket.call("head_object", "potstill-readiness")
        return self._bucket.name

    def free_bytes(self) -> int:
        """Return what is left for files in the making on this machine."""
        return self._scratch.free_bytes()

    def batches(self, older_than_seconds: float, size: int) -> Iterator[set[str]]:
        """Yield the digests of all blobs of some age, in batches."""
        batch: set[str] = set()
        newest = datetime.now(UTC) - timedelta(seconds=older_than_seconds)
        for item in self._bucket.listing("blobs/"):
            name = item["Key"].rpartition("/")[2]
            if item["LastModified"] <= newest and len(name) == 64:
                batch.add(f"sha256-{name}")
            if len(batch) >= size:
                yield batch
                batch = set()
        if batch:
            yield batch

    def sweep(self, older_than_seconds: float, working: set[str]) -> int:
        """Remove abandoned local files, and what was begun in the bucket and not finished; return how many."""
        removed = self._scratch.sweep(older_than_seconds, working)
        newest = datetime.now(UTC) - timedelta(seconds=older_than_seconds)
        for item in self._bucket.listing("staging/"):
            if item["LastModified"] <= newest:
                self._bucket.call("delete_object", self._bucket.inner(item["Key"]))
                removed += 1
        removed += self._states.sweep(newest, working)
        for upload in self._bucket.unfinished():
            if upload["Initiated"] <= newest:
                with contextlib.suppress(NotThere):
                    key = self._bucket.inner(upload["Key"])
                    self._bucket.call("abort_multipart_upload", key, UploadId=upload["UploadId"])
                    removed += 1
        return removed
