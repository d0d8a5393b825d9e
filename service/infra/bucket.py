"""One S3-compatible bucket: its client, its keys under a prefix, and what its failures mean to us."""

import base64
import contextlib
import functools
import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import boto3
import urllib3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError, ProfileNotFound

from contract.hosts import is_this_machine
from service.config import Settings
from service.domain.errors import DomainError, StartError
from service.infra.blobs import BLOCK

log = logging.getLogger(__name__)
_MISSING = frozenset({"404", "NoSuchKey", "NoSuchUpload", "NotFound"})
_RESUMES = 5
TIMEOUT_SECONDS = 20.0
"""Patience with the store for a connection and a read."""
_BREAKS = (BotoCoreError, IncompleteReadError, HTTPClientError, urllib3.exceptions.HTTPError, OSError)


class NotThere(FileNotFoundError):
    """There is no such object."""


def _unavailable(error: Exception) -> DomainError:
    log.error("the blob store: %s: %s", type(error).__name__, error)
    return DomainError("unavailable", "the blob store does not answer; try again in a moment", retry_after=5)


_session_lock = threading.Lock()


@functools.cache
def _session() -> Any:
    return boto3.session.Session()


class Bucket:
    """Calls to one bucket.

    Every failure but a missing object is an 'unavailable': the store is away, slow, full, or refuses our credentials.
    The log says which; a caller can only come back later.
    """

    def __init__(self, settings: Settings):
        assert settings.bucket is not None
        self.name, self._prefix = settings.bucket
        self._client = _client(settings, settings.s3_endpoint)
        public = settings.s3_public_endpoint
        self._signer = self._client if public is None else _client(settings, public)

    def _full(self, key: str) -> str:
        return f"{self._prefix}{key}"

    def inner(self, full: str) -> str:
        """Return a listed key without the prefix."""
        return full.removeprefix(self._prefix)

    def ensure(self) -> bool:
        """Make the bucket if it is not there; return whether it was made."""
        try:
            self._client.head_bucket(Bucket=self.name)
            return False
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
                raise _unavailable(error) from error
        except BotoCoreError as error:
            raise _unavailable(error) from error
        self._client.create_bucket(Bucket=self.name)
        return True

    def call(self, operation: str, key: str, **options: Any) -> Any:
        """Call an operation on an object.

        Raises:
            NotThere: there is no such object or upload.
            DomainError: unavailable.
        """
        try:
            return getattr(self._client, operation)(Bucket=self.name, Key=self._full(key), **options)
        except ClientError as error:
            if error.response["Error"]["Code"] in _MISSING:
                raise NotThere(key) from error
            raise _unavailable(error) from error
        except BotoCoreError as error:
            raise _unavailable(error) from error

    def copy(self, key: str, target: str) -> None:
        """Copy an object to another key."""
        self.call("copy_object", target, CopySource={"Bucket": self.name, "Key": self._full(key)})

    def put(self, key: str, file: BinaryIO, sha256: bytes | None = None) -> None:
        """Put a file from its position on, with the SHA-256 that the store is to check; computed where not given."""
        if sha256 is None:
            start = file.tell()
            found = hashlib.sha256()
            while block := file.read(BLOCK):
                found.update(block)
            sha256 = found.digest()
            file.seek(start)
        self.call("put_object", key, Body=file, ChecksumSHA256=base64.b64encode(sha256).decode())

    def read(self, key: str, start: int, end: int | None) -> Iterator[bytes]:
        """Yield an object's bytes; a transfer that breaks off goes on where it was, a few times.

        Raises:
            NotThere: there is no such object.
            DomainError: unavailable.
        """
        for left in range(_RESUMES, -1, -1):
            body = self._open(key, start, end)
            if body is None:
                return
            try:
                for block in body.iter_chunks(BLOCK):
                    start += len(block)
                    yield block
                return
            except _BREAKS as error:
                if not left:
                    raise _unavailable(error) from error
                log.warning("reading %s broke off at byte %d: %s", key, start, error)
            finally:
                body.close()

    def _open(self, key: str, start: int, end: int | None) -> Any:
        if end is not None and start >= end:
            return None
        options = {} if not start and end is None else {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        try:
            return self.call("get_object", key, **options)["Body"]
        except DomainError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and cause.response["Error"]["Code"] == "InvalidRange":
                return None  # all of it was read, and then the connection broke
            raise

    def listing(self, prefix: str) -> Iterator[dict[str, Any]]:
        """Yield what is known of the objects whose keys start with a prefix."""
        yield from self._pages("list_objects_v2", "Contents", Prefix=self._full(prefix))

    def unfinished(self) -> Iterator[dict[str, Any]]:
        """Yield the uploads in parts that were begun and not completed."""
        yield from self._pages("list_multipart_uploads", "Uploads", Prefix=self._prefix)

    def _pages(self, operation: str, of: str, **options: Any) -> Iterator[dict[str, Any]]:
        try:
            for page in self._client.get_paginator(operation).paginate(Bucket=self.name, **options):
                yield from page.get(of, [])
        except (ClientError, BotoCoreError) as error:
            raise _unavailable(error) from error

    def sign(self, operation: str, key: str, seconds: int, **options: Any) -> str:
        """Return an address for one operation, valid for some seconds to whoever has it."""
        parameters = {"Bucket": self.name, "Key": self._full(key), **options}
        return str(self._signer.generate_presigned_url(operation, Params=parameters, ExpiresIn=seconds))

    def close(self) -> None:
        """Close the connections."""
        with contextlib.suppress(Exception):
            self._client.close()
            self._signer.close()


def _client(settings: Settings, endpoint: str | None) -> Any:
    """Return a client. Without keys in the settings, boto3 looks where it always does: AWS_* variables, files, …"""
    if settings.s3_access_key is not None:  # a profile that is not there would be looked for all the same
        os.environ.pop("AWS_PROFILE", None)
        os.environ.pop("AWS_DEFAULT_PROFILE", None)
    try:
        with _session_lock:  # a session reads its data files once; its clients may be used by many threads, it may not
            return _session().client(**_options(settings, endpoint))
    except ProfileNotFound as error:
        name = next((each for each in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE") if each in os.environ), "AWS_PROFILE")
        raise StartError(
            f"{name}={os.environ.get(name)!r}: no such profile is in the files of AWS; unset it, name one that is, or "
            "set POTSTILL_S3_ACCESS_KEY and POTSTILL_S3_SECRET_KEY"
        ) from error


def _options(settings: Settings, endpoint: str | None) -> dict[str, Any]:
    key, secret = settings.s3_access_key, settings.s3_secret_key
    return {
        "service_name": "s3",
        "endpoint_url": endpoint,
        "region_name": settings.s3_region,
        "aws_access_key_id": key.get_secret_value() if key else None,
        "aws_secret_access_key": secret.get_secret_value() if secret else None,
        "config": Config(
            signature_version="s3v4",
            connect_timeout=TIMEOUT_SECONDS,
            read_timeout=TIMEOUT_SECONDS,
            retries={"mode": "standard", "total_max_attempts": 3},
            max_pool_connections=settings.threads + 4,
            proxies={} if endpoint and is_this_machine(urlsplit(endpoint).hostname or "") else None,  # None: HTTP_PROXY
            ignore_configured_endpoint_urls=True,  # AWS_ENDPOINT_URL: ours, or AWS
            # We send a SHA-256 where bytes go; boto3's own CRC trailers are beyond some S3-compatible stores.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if endpoint else "auto"},
        ),
    }
