"""What only a bucket can do or get wrong: copies, parts, bytes that change on the way, a store that is away."""

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.config import Settings
from service.domain.errors import DomainError
from service.infra.blob_bucket import WrongBytes, open_bucket
from service.infra.blobs import BlobFault, Blobs
from service.infra.bucket import Bucket
from service.infra.sums import sums_of
from tests.bucket_server import BucketServer, client, environment

ROOT = Path(__file__).parents[3]
PART = 5 << 20  # the smallest that S3 takes


@pytest.fixture
def server(bucket_server: BucketServer) -> Iterator[BucketServer]:
    yield bucket_server
    door = bucket_server.door
    door.down, door.spoil, door.cut, door.hanging = False, False, 0, 0.0
    door.failing.clear()
    door.seen.clear()


@pytest.fixture
def values(server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr("service.infra.bucket.TIMEOUT_SECONDS", 5.0)
    return server.settings(home=tmp_path, presign=True)


@pytest.fixture
def bucket(values: dict[str, Any]) -> Blobs:
    return open_bucket(Settings(**values), PART)


def stored(bucket: Blobs, content: bytes) -> str:
    path = bucket.scratch.temp()
    path.write_bytes(content)
    digest = sums_of(path).digest
    bucket.store.prepare(path, digest)
    path.unlink()
    return digest


def test_a_large_file_goes_in_parts_and_is_there_only_when_whole(
    bucket: Blobs, server: BucketServer, values: dict[str, Any]
) -> None:
    content = os.urandom(2 * PART + 7)
    digest = stored(bucket, content)
    assert b"".join(bucket.store.read(digest)) == content
    path = bucket.scratch.temp()
    path.write_bytes(content[:-1])
    other = sums_of(path).digest
    with open(path, "ab") as file:
        file.write(b"!")  # it changes between its check and its way to the bucket
    with pytest.raises(WrongBytes):
        bucket.store.prepare(path, other)
    with pytest.raises(FileNotFoundError):
        bucket.store.size(other)
    assert server.keys(values) == [f"blobs/{digest[7:]}"]
    assert not list(Bucket(Settings(**values)).unfinished())


@pytest.mark.parametrize("size", [100, PART + 1])
def test_bytes_that_change_on_the_way_are_refused(bucket: Blobs, server: BucketServer, size: int) -> None:
    server.door.spoil = True
    with pytest.raises(DomainError, match="store"):
        stored(bucket, os.urandom(size))
    assert list(bucket.store.batches(-60, 10)) == []


def test_a_killed_put_leaves_nothing_to_see_and_is_swept(
    bucket: Blobs, server: BucketServer, values: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(os.urandom(3 * PART))
    digest = sums_of(tmp_path / "file").digest
    program = (
        "import sys; from pathlib import Path; from service.config import load;"
        "from service.infra.blob_bucket import open_bucket;"
        f"open_bucket(load(), {PART}).store.prepare(Path(sys.argv[1]), sys.argv[2])"
    )
    server.door.hanging = 0.2
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "file"), digest], cwd=ROOT, env=os.environ | environment(values)
    )
    end = time.monotonic() + 60
    while not any("PUT" in line and digest[7:] in line for line in server.door.seen):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.door.hanging = 0
    with pytest.raises(FileNotFoundError):
        bucket.store.size(digest)
    bucket.sweep(-60, set())
    assert not list(Bucket(Settings(**values)).unfinished())
    assert server.keys(values) == []


def test_a_store_that_stumbles_is_asked_again(bucket: Blobs, server: BucketServer) -> None:
    server.door.failing["PUT"] = 1
    digest = stored(bucket, b"weights")
    server.door.failing["GET"] = 1
    assert b"".join(bucket.store.read(digest)) == b"weights"


def test_a_download_that_breaks_off_goes_on(bucket: Blobs, server: BucketServer) -> None:
    content = os.urandom(300_000)
    digest = stored(bucket, content)
    server.door.cut = 1
    assert b"".join(bucket.store.read(digest)) == content
    assert sum(line.startswith("GET") for line in server.door.seen) == 2


def test_a_store_that_is_down_is_unavailable(bucket: Blobs, server: BucketServer) -> None:
    digest = stored(bucket, b"weights")
    server.door.down, store = True, bucket.store
    for act in (store.size, store.delete, lambda d: list(store.read(d)), lambda d: store.check()):
        with pytest.raises(DomainError) as refused:
            act(digest)
        assert refused.value.kind == "unavailable"


def test_a_store_that_nobody_answers_for_is_unavailable(values: dict[str, Any]) -> None:
    gone = open_bucket(Settings(**{**values, "s3_endpoint": "http://127.0.0.1:9"}))
    with pytest.raises(DomainError) as refused:
        gone.store.check()
    assert refused.value.kind == "unavailable"


# ------------------------------------------------------------------------------------------------------- copies
def test_a_copy_is_fetched_once(bucket: Blobs, server: BucketServer) -> None:
    digest = stored(bucket, b"weights")
    server.door.seen.clear()
    for _ in range(3):
        with bucket.cache.hold([digest, digest]):
            assert bucket.cache.path(digest).read_bytes() == b"weights"
    assert sum(line.startswith("GET") for line in server.door.seen) == 1


def _hold(values: dict[str, Any], digest: str, begin: Any) -> None:
    bucket = open_bucket(Settings(**values))
    begin.wait()
    with bucket.cache.hold([digest]):
        assert sums_of(bucket.cache.path(digest)).digest == digest


@pytest.mark.skipif("POTSTILL_TEST_DISTRIBUTED" not in os.environ, reason="make test-distributed")
def test_two_processes_fetch_one_copy_once(bucket: Blobs, server: BucketServer, values: dict[str, Any]) -> None:
    digest = stored(bucket, os.urandom(1 << 20))
    context = multiprocessing.get_context("spawn")
    begin = context.Barrier(3)
    several = [context.Process(target=_hold, args=(values, digest, begin)) for _ in range(2)]
    for process in several:
        process.start()
    server.door.seen.clear()
    begin.wait(timeout=60)
    for process in several:
        process.join(60)
    assert [process.exitcode for process in several] == [0, 0]
    assert sum(line.startswith("GET") for line in server.door.seen) == 1


def test_the_copies_used_longest_ago_make_room_but_not_those_in_use(values: dict[str, Any]) -> None:
    bucket = open_bucket(Settings(**{**values, "cache_bytes": 1 << 20}))
    one, two, three = (stored(bucket, bytes([number]) * 400_000) for number in range(3))
    with bucket.cache.hold([one]):
        os.utime(bucket.cache.path(one), (0, 0))  # the oldest, but in use
        with bucket.cache.hold([two]):
            pass
        with bucket.cache.hold([three]):
            assert [bucket.cache.path(digest).exists() for digest in (one, two, three)] == [True, False, True]
            bucket.cache.forget({one, three})
            assert bucket.cache.path(one).exists() and bucket.cache.path(three).exists()
    bucket.cache.forget({one, three})
    assert list(bucket.cache.batches(10)) == []


def test_wrong_bytes_never_become_a_copy(bucket: Blobs, values: dict[str, Any]) -> None:
    digest = stored(bucket, b"weights")
    name, prefix = values["blob_url"].removeprefix("s3://").split("/")
    client(values["s3_endpoint"]).put_object(Bucket=name, Key=f"{prefix}/blobs/{digest[7:]}", Body=b"WEIGHTS")
    with pytest.raises(BlobFault), bucket.cache.hold([digest]):
        pass
    assert not bucket.cache.path(digest).exists()
    assert list((bucket.cache.path(digest).parents[1] / "tmp").iterdir()) == []


def test_a_result_becomes_a_copy(bucket: Blobs, server: BucketServer) -> None:
    path = bucket.scratch.temp()
    path.write_bytes(b"result")
    digest = sums_of(path).digest
    bucket.store.prepare(path, digest)
    bucket.store.keep(path, digest)
    bucket.cache.adopt(path, digest)
    bucket.cache.adopt(path, digest)  # two names, one content
    server.door.seen.clear()
    with bucket.cache.hold([digest]):
        assert bucket.cache.path(digest).read_bytes() == b"result"
    assert server.door.seen == []


def test_files_in_the_making_have_a_limit(values: dict[str, Any]) -> None:
    bucket = open_bucket(Settings(**{**values, "cache_bytes": 1 << 20}))
    bucket.scratch.temp().write_bytes(bytes(1 << 19))
    assert bucket.scratch.free_bytes() <= (1 << 19)


# ------------------------------------------------------------------------------------------------ presigned addresses
def test_a_link_gives_the_bytes_to_whoever_has_it(bucket: Blobs) -> None:
    digest = stored(bucket, b"weights")
    link = bucket.links.link(digest)
    assert link is not None and "X-Amz-Signature" in link and "testing-secret" not in link
    assert httpx.get(link).content == b"weights"
    assert httpx.get(link, headers={"Range": "bytes=2-3"}).content == b"ig"


def test_a_device_puts_a_file_by_itself(bucket: Blobs, server: BucketServer, values: dict[str, Any]) -> None:
    staging = bucket.links.staging()
    assert staging is not None
    digest = "sha256-" + hashlib.sha256(b"update").hexdigest()
    name, url, headers, seconds = staging.open("cli_1", digest, 6)
    assert seconds == 900
    assert httpx.put(url, content=b"UPDATE", headers=headers).status_code == 400, "other bytes than the signed ones"
    assert httpx.put(url, content=b"update", headers=headers).status_code == 200
    assert b"".join(staging.read("cli_1", name)) == b"update"
    for owner, other in (("cli_2", name), ("cli_1", "0" * 32), ("cli_1", "../" + name)):
        with pytest.raises(FileNotFoundError):
            list(staging.read(owner, other))
    bucket.sweep(3600, set())
    assert server.keys(values) == [f"staging/cli_1/{name}"]
    bucket.sweep(-60, set())
    assert server.keys(values) == []


def test_a_device_may_leave_few_files_lying(bucket: Blobs) -> None:
    staging = bucket.links.staging()
    assert staging is not None
    digest = "sha256-" + hashlib.sha256(b"update").hexdigest()
    for _ in range(4):
        _, url, headers, _ = staging.open("cli_1", digest, 6)
        assert httpx.put(url, content=b"update", headers=headers).status_code == 200
    with pytest.raises(DomainError) as refused:
        staging.open("cli_1", digest, 6)
    assert refused.value.kind == "too-many-requests"
    assert staging.open("cli_2", digest, 6)


def overwrite(values: dict[str, Any], digest: str, content: bytes) -> None:
    """Put other bytes under a blob's key, as nobody of ours would."""
    name, prefix = values["blob_url"].removeprefix("s3://").split("/")
    client(values["s3_endpoint"]).put_object(Bucket=name, Key=f"{prefix}/blobs/{digest[7:]}", Body=content)


@pytest.mark.parametrize("content", [b"weights", bytes(PART + 1)], ids=["one", "parts"])
def test_another_object_under_a_blobs_key_is_found_and_set_aside(
    bucket: Blobs, server: BucketServer, values: dict[str, Any], content: bytes
) -> None:
    digest = stored(bucket, content)
    bucket.store.verify(digest)
    overwrite(values, digest, b"W" + content[1:])
    with pytest.raises(BlobFault) as found:
        bucket.store.verify(digest)
    assert found.value.state == "damaged"
    assert bucket.store.set_aside(found.value)
    assert server.keys(values) == [f"quarantine/{digest[7:]}"]
    with pytest.raises(BlobFault) as gone:
        bucket.store.verify(digest)
    assert gone.value.state == "missing"
    bucket.store.delete(digest)
    assert server.keys(values) == []


def test_an_object_that_was_put_back_meanwhile_stays(bucket: Blobs, values: dict[str, Any]) -> None:
    digest = stored(bucket, b"weights")
    overwrite(values, digest, b"WEIGHTS")
    with pytest.raises(BlobFault) as found:
        bucket.store.verify(digest)
    stored(bucket, b"weights")
    assert not bucket.store.set_aside(found.value)
    bucket.store.verify(digest)


def test_an_object_is_read_once_as_long_as_it_is_the_same(
    bucket: Blobs, server: BucketServer, values: dict[str, Any]
) -> None:
    digest = stored(bucket, bytes(PART + 1))
    server.door.seen.clear()
    for _ in range(3):
        bucket.store.verify(digest)
    assert [line.split()[0] for line in server.door.seen].count("GET") == 1
