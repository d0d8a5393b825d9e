"""Files by digest: whole or not there, never outside the folder."""

import hashlib
import os
from pathlib import Path

import pytest

from service.infra.blobs import Blobs, digest_of


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def stored(blobs: Blobs, content: bytes) -> str:
    path = blobs.temp()
    path.write_bytes(content)
    digest, size = digest_of(path)
    assert size == len(content)
    blobs.keep(path, digest)
    assert not path.exists()
    return digest


def test_a_file_is_kept_under_its_digest_and_removed(blobs: Blobs) -> None:
    digest = stored(blobs, b"weights")
    assert digest == "sha256-" + hashlib.sha256(b"weights").hexdigest()
    assert blobs.path(digest).read_bytes() == b"weights"
    assert stored(blobs, b"weights") == digest  # again does no harm
    blobs.delete(digest)
    blobs.delete(digest)
    assert not blobs.path(digest).exists()


@pytest.mark.parametrize(
    "name",
    ["", "..", "../../etc/passwd", "sha256-", "sha256-" + "g" * 64, "sha256-" + "A" * 64, "sha256-" + "a" * 63,
     "sha256-" + "a" * 64 + "\n", "sha256-" + "a" * 64 + "/..", "/" + "a" * 70],
)  # fmt: skip
def test_no_path_is_made_from_anything_else(blobs: Blobs, name: str) -> None:
    with pytest.raises(ValueError, match="not a digest"):
        blobs.path(name)


def test_temporary_names_are_new(blobs: Blobs) -> None:
    assert len({blobs.temp() for _ in range(100)}) == 100


def test_a_jobs_folder_is_empty(blobs: Blobs) -> None:
    folder = blobs.work_dir("job_1", 1)
    (folder / "half-written").touch()
    assert blobs.work_dir("job_1", 1) == folder
    assert list(folder.iterdir()) == []


def test_only_old_leftovers_are_swept(blobs: Blobs) -> None:
    old, new, folder = blobs.temp(), blobs.temp(), blobs.work_dir("job_1", 1)
    for path in (old, new, folder / "x"):
        path.touch()
    digest = stored(blobs, b"kept")
    for path in (old, folder, blobs.path(digest)):
        os.utime(path, (1, 1))
    assert blobs.sweep(older_than_seconds=3600, working=set()) == 2
    assert (old.exists(), new.exists(), folder.exists(), blobs.path(digest).exists()) == (False, True, False, True)


def test_free_space_is_known(blobs: Blobs) -> None:
    assert blobs.free_bytes() > 0
