"""Where devices put files by themselves: a prefix of the bucket, one presigned address a file, a few files a device."""

import base64
import contextlib
import re
import uuid
from collections.abc import Iterator

from service.domain.errors import DomainError
from service.infra.blobs import hex_of
from service.infra.bucket import Bucket, NotThere

_NAME = re.compile(r"[0-9a-f]{32}")
MOST_FILES = 4


class BucketStaging:
    """The staging prefix of a bucket; what lies there too long is swept."""

    def __init__(self, bucket: Bucket, seconds: int):
        self._bucket, self._seconds = bucket, seconds

    def _key(self, owner: str, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise NotThere(name)
        return f"staging/{owner}/{name}"

    def open(self, owner: str, digest: str, size: int) -> tuple[str, str, dict[str, str], int]:
        """Return name, address, headers and seconds for one PUT of exactly these bytes.

        Length and SHA-256 are part of the signature: the store takes no other bytes under it.
        """
        lying = sum(1 for _ in self._bucket.listing(f"staging/{owner}/"))
        if lying >= MOST_FILES:
            detail = f"{lying} files lie there unused; name one of them, or wait an hour"
            raise DomainError("too-many-requests", detail, retry_after=60)
        name = uuid.uuid4().hex
        checksum = base64.b64encode(bytes.fromhex(hex_of(digest))).decode()
        url = self._bucket.sign(
            "put_object", self._key(owner, name), self._seconds, ContentLength=size, ChecksumSHA256=checksum
        )
        # a checksum in the query is signed with it; one that is not must come as a header
        headers = {"Content-Length": str(size)}
        if "x-amz-checksum-sha256=" not in url.lower():
            headers["x-amz-checksum-sha256"] = checksum
        return name, url, headers, self._seconds

    def size(self, owner: str, name: str) -> int:
        """Return the size of a file in bytes."""
        return int(self._bucket.call("head_object", self._key(owner, name))["ContentLength"])

    def read(self, owner: str, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        return self._bucket.read(self._key(owner, name), 0, None)

    def drop(self, owner: str, name: str) -> None:
        """Remove a file."""
        with contextlib.suppress(NotThere):
            self._bucket.call("delete_object", self._key(owner, name))
