"""One suite for every store of blobs: whole or not there, named by digest, nothing else reachable."""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.tensors import write_file
from service.config import Settings
from service.infra.blob_folder import FolderStore
from service.infra.blob_store import open_blobs
from service.infra.blobs import Blobs
from service.infra.sums import sums_of
from tests.bucket_server import BucketServer

Maker = Callable[[], Blobs]


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    """What opens the store, again each time: as several processes would."""
    more: dict[str, Any] = {}
    if request.param == "bucket":
        server: BucketServer = request.getfixturevalue("bucket_server")
        more = server.settings()
    settings = Settings(home=tmp_path, **more)
    return lambda: open_blobs(settings)


@pytest.fixture
def blobs(store: Maker) -> Blobs:
    return store()


def stored(blobs: Blobs, content: bytes) -> str:
    path = blobs.scratch.temp()
    path.write_bytes(content)
    sums = sums_of(path)
    digest, size = sums.digest, sums.size
    assert size == len(content)
    blobs.store.prepare(path, digest)
    blobs.store.keep(path, digest)
    path.unlink(missing_ok=True)
    return digest


def bytes_of(blobs: Blobs, digest: str) -> bytes:
    with blobs.cache.hold([digest]):
        return blobs.cache.path(digest).read_bytes()


def is_there(blobs: Blobs, digest: str) -> bool:
    try:
        return blobs.store.size(digest) >= 0
    except FileNotFoundError:
        return False


def test_a_file_is_kept_under_its_digest_and_removed(store: Maker) -> None:
    blobs = store()
    digest = stored(blobs, b"weights")
    assert digest == "sha256-" + hashlib.sha256(b"weights").hexdigest()
    assert bytes_of(store(), digest) == b"weights"
    assert stored(blobs, b"weights") == digest  # again does no harm
    blobs.store.delete(digest)
    blobs.store.delete(digest)
    assert not is_there(store(), digest)


def test_what_was_only_prepared_is_kept_later_though_it_was_removed_in_between(blobs: Blobs) -> None:
    path = blobs.scratch.temp()
    path.write_bytes(b"in the making")
    digest = sums_of(path).digest
    blobs.store.prepare(path, digest)
    blobs.store.delete(digest)
    blobs.store.keep(path, digest)
    assert bytes_of(blobs, digest) == b"in the making"


def test_names_of_many_files_are_on_the_disk_together(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [f"weights {number}".encode() for number in range(6)]
    digests = [f"sha256-{hashlib.sha256(content).hexdigest()}" for content in contents]
    for content, digest in zip(contents, digests, strict=True):
        path = blobs.scratch.temp()
        path.write_bytes(content)
        blobs.store.prepare(path, digest)
        blobs.store.name(path, digest)
    synced: list[str] = []
    fsync = os.fsync

    def seen(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", seen)
    blobs.store.settle(digests)
    if isinstance(blobs.store, FolderStore):
        folders = {str(blobs.store.path(digest).parent) for digest in digests}
        assert synced == [*sorted(folders), str(blobs.store.root)]
        synced.clear()
        blobs.store.settle(digests[:1])  # the folder's own name is there by now
        assert synced == [str(blobs.store.path(digests[0]).parent)]
        other = "sha256-" + "0" * 64
        blobs.store.path(other).parent.mkdir(exist_ok=True)  # another process has made it
        blobs.store.settle([other])
        assert synced[1:] == [str(blobs.store.path(other).parent), str(blobs.store.root)]
    assert [bytes_of(blobs, digest) for digest in digests] == contents


def test_parts_of_a_blob_can_be_read(blobs: Blobs) -> None:
    content = bytes(range(256)) * 9000  # more than two blocks
    digest = stored(blobs, content)
    assert blobs.store.size(digest) == len(content)
    assert b"".join(blobs.store.read(digest)) == content
    assert b"".join(blobs.store.read(digest, 1_500_000)) == content[1_500_000:]
    assert b"".join(blobs.store.read(digest, 3, 10)) == content[3:10]
    assert b"".join(blobs.store.read(digest, 5, 5)) == b""


def test_the_header_of_a_file_is_read(blobs: Blobs, tmp_path: Path) -> None:
    write_file(tmp_path / "file", {"a": np.zeros((3, 4), np.float32)}, {"who": "me"})
    digest = stored(blobs, (tmp_path / "file").read_bytes())
    for _ in range(2):
        header = blobs.store.header(digest)
        assert (header.metadata, header.tensors["a"].shape) == ({"who": "me"}, (3, 4))


NO_DIGESTS = [
    "", "sha256-", "sha256-" + "g" * 64, "sha256-" + "A" * 64, "sha256-../../../etc/passwd", "a" * 64,
    "sha256-" + "a" * 63, "sha256-" + "a" * 65, "sha256-" + "a" * 64 + "\n", "md5-" + "a" * 64,
]  # fmt: skip


def test_no_path_is_made_from_anything_else(blobs: Blobs) -> None:
    store = blobs.store
    for name in NO_DIGESTS:
        for act in (blobs.cache.path, store.delete, store.size, lambda digest: list(store.read(digest))):
            with pytest.raises(ValueError, match="not a digest"):
                act(name)


def test_a_blob_that_is_not_there_is_missing(blobs: Blobs) -> None:
    digest = "sha256-" + "ab" * 32
    with pytest.raises(FileNotFoundError):
        blobs.store.size(digest)
    with pytest.raises(FileNotFoundError):
        list(blobs.store.read(digest))


def test_a_path_says_which_blob_it_is(blobs: Blobs, tmp_path: Path) -> None:
    digest = stored(blobs, b"one")
    assert blobs.cache.digest_at(blobs.cache.path(digest)) == digest
    for other in (tmp_path, blobs.scratch.temp(), tmp_path / digest[7:], blobs.cache.path(digest).parent):
        assert blobs.cache.digest_at(other) is None


def test_temporary_names_are_new(blobs: Blobs) -> None:
    assert len({blobs.scratch.temp() for _ in range(100)}) == 100


def test_a_jobs_folder_is_empty(blobs: Blobs) -> None:
    folder = blobs.scratch.work_dir("job_1", 1)
    (folder / "left over").write_text("by a crash")
    assert blobs.scratch.work_dir("job_1", 1) == folder
    assert list(folder.iterdir()) == []


def test_only_old_leftovers_are_swept(blobs: Blobs) -> None:
    old, new, folder = blobs.scratch.temp(), blobs.scratch.temp(), blobs.scratch.work_dir("job_1", 1)
    old.write_text("")
    new.write_text("")
    digest = stored(blobs, b"kept")
    for path in (old, folder):
        os.utime(path, (time.time() - 7200,) * 2)
    assert blobs.sweep(older_than_seconds=3600, working=set()) == 2
    assert (old.exists(), new.exists(), folder.exists(), is_there(blobs, digest)) == (False, True, False, True)


def test_blobs_of_some_age_are_listed_in_batches(blobs: Blobs) -> None:
    digests = {stored(blobs, bytes([number])) for number in range(5)}
    batches = list(blobs.store.batches(-60, 2))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert set().union(*batches) == digests
    assert list(blobs.store.batches(3600, 2)) == []


def test_free_space_is_known_and_the_store_says_what_it_is(blobs: Blobs) -> None:
    assert blobs.scratch.free_bytes() > 0
    assert blobs.store.check()
