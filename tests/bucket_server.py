"""An S3 server for tests: moto behind a door that checks what moto does not, and that can be made to fail.

moto stores whatever comes; a real store refuses bytes that are not those of `x-amz-checksum-sha256`, and so does the
door. With POTSTILL_TEST_S3 (the address of a real store that knows the keys below) that store answers behind the door.
`python -m tests.bucket_server PORT` serves one until it is ended.
"""

import base64
import contextlib
import functools
import hashlib
import http.client
import io
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

KEYS = {"s3_access_key": "testing", "s3_secret_key": "testing-secret"}
Application = Callable[..., Any]


@dataclass
class Door:
    """A WSGI application in front of moto.

    Attributes:
        down: answer 503 to everything.
        gone: hang up on everybody.
        refused: how many requests met a store that was down or gone.
        busy: the requests that are on their way, by the caller's port.
        failing: how many of the next requests of a method get a 500.
        hanging: seconds that every request waits.
        cut: bytes of each GET's body after which the connection breaks, once a request.
        seen: method and path of each request, and "signed" where the address itself is the permission.
    """

    inside: Application
    down: bool = False
    gone: bool = False
    refused: int = 0
    busy: dict[int, str] = field(default_factory=dict)
    failing: dict[str, int] = field(default_factory=dict)
    hanging: float = 0.0
    cut: int = 0
    spoil: bool = False
    seen: list[str] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        line = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        line += " signed" if "X-Amz-Signature=" in environ.get("QUERY_STRING", "") else ""
        self.seen.append(line)
        caller = int(environ["REMOTE_PORT"])
        self.busy[caller] = line
        try:
            return self._answer(environ, start)
        finally:
            self.busy.pop(caller, None)

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        method = environ["REQUEST_METHOD"]
        if self.hanging:
            time.sleep(self.hanging)
        self.refused += self.down or self.gone
        if self.gone:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return _refuse(start, "503 Slow Down", "InternalError")
        if self.down or self.failing.get(method, 0) > 0:
            self.failing[method] = self.failing.get(method, 0) - 1
            return _refuse(start, "503 Slow Down" if self.down else "500 Internal Server Error", "InternalError")
        if method == "PUT":
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            if self.spoil and body:
                body = bytes([body[0] ^ 1]) + body[1:]
            claimed = environ.get("HTTP_X_AMZ_CHECKSUM_SHA256")
            if claimed and base64.b64encode(hashlib.sha256(body).digest()).decode() != claimed:
                return _refuse(start, "400 Bad Request", "BadDigest")
            environ["wsgi.input"] = io.BytesIO(body)
        answer = self.inside(environ, start)
        if method == "GET" and self.cut and "/blobs/" in environ["PATH_INFO"]:
            whole, self.cut = b"".join(answer), 0
            return iter([whole[: len(whole) // 2]])
        return answer


class Behind:
    """A real store as a WSGI application: requests go on as they came, for their signatures cover path and host."""

    def __init__(self, url: str):
        self._host = url.rstrip("/").rpartition("//")[2]

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterator[bytes]:
        headers = {name[5:].replace("_", "-"): text for name, text in environ.items() if name.startswith("HTTP_")}
        headers.pop("EXPECT", None)  # the body has been read
        headers.pop("CONNECTION", None)
        headers |= {name.replace("_", "-"): environ[name] for name in ("CONTENT_TYPE",) if environ.get(name)}
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        link = http.client.HTTPConnection(self._host)
        link.putrequest(environ["REQUEST_METHOD"], environ["REQUEST_URI"], skip_host=True, skip_accept_encoding=True)
        for name, text in {**headers, "CONTENT-LENGTH": str(len(body))}.items():
            link.putheader(name, text)
        link.endheaders(body)
        answer = link.getresponse()
        hop = {"connection", "transfer-encoding", "keep-alive"}
        kept = [(name, text) for name, text in answer.getheaders() if name.lower() not in hop]
        start(f"{answer.status} {answer.reason}", kept)
        return self._stream(link, answer)

    def _stream(self, link: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        with contextlib.closing(link):
            while block := answer.read(1 << 20):
                yield block


def _inside() -> Application:
    if url := os.environ.get("POTSTILL_TEST_S3"):
        return Behind(url)
    os.environ.setdefault("MOTO_S3_DEFAULT_KEY_BUFFER_SIZE", str(64 << 20))
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    return DomainDispatcherApplication(create_backend_app)


def _refuse(start: Callable[..., Any], status: str, code: str) -> list[bytes]:
    body = f"<Error><Code>{code}</Code><Message>as the test wants</Message></Error>".encode()
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


@dataclass
class BucketServer:
    """A running server."""

    url: str
    door: Door

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return the settings of a service that keeps its blobs under a prefix of its own."""
        client(self.url).create_bucket(Bucket="potstill-tests")
        return {
            "blob_url": f"s3://potstill-tests/{uuid.uuid4().hex}",
            "s3_endpoint": self.url,
            "blob_dir": None,
            **KEYS,
            **more,
        }

    def keys(self, settings: dict[str, Any]) -> list[str]:
        """Return the keys in the bucket of some settings, without the prefix."""
        bucket, _, prefix = settings["blob_url"].removeprefix("s3://").partition("/")
        found = client(self.url).list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
        return sorted(item["Key"].removeprefix(f"{prefix}/") for item in found)


@functools.cache
def client(url: str) -> Any:
    """Return a boto3 client of the server."""
    import boto3

    key, secret = KEYS.values()
    return boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id=key, aws_secret_access_key=secret
    )


def environment(settings: dict[str, Any]) -> dict[str, str]:
    """Return settings as environment variables."""
    return {f"POTSTILL_{name.upper()}": str(value) for name, value in settings.items() if value is not None}


@contextmanager
def serve(port: int = 0) -> Iterator[BucketServer]:
    """Run a server for the length of the block, on a free port unless told otherwise."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    door = Door(_inside())
    server = make_server("127.0.0.1", port, door, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, name="bucket-server", daemon=True)
    thread.start()
    try:
        yield BucketServer(f"http://127.0.0.1:{server.server_port}", door)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    with serve(int(sys.argv[1])) as running:
        print(running.url, flush=True)
        threading.Event().wait()
