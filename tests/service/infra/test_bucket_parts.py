"""Resumable uploads in a bucket: what was flushed is there for every replica, nothing else counts."""

import os
from pathlib import Path
from typing import Any

import pytest

from service.config import Settings
from service.infra.blob_bucket import open_bucket
from service.infra.parts import Parts, PartsLost
from tests.bucket_server import BucketServer


@pytest.fixture
def values(bucket_server: BucketServer, tmp_path: Path) -> dict[str, Any]:
    return bucket_server.settings(home=tmp_path)


@pytest.fixture
def parts(values: dict[str, Any]) -> Parts:
    return open_bucket(Settings(**values)).open_parts()


def append(parts: Parts, upload: str, offset: int, known: list[str], *pieces: bytes) -> list[str]:
    """Write and flush pieces, one by one; leave the last one unflushed if it starts with '!'."""
    writer = parts.writer(upload, offset, known, "me")
    for piece in pieces:
        writer.write(memoryview(piece))
        if not piece.startswith(b"!"):
            writer.flush()
    writer.close()
    return writer.parts


def test_another_replica_goes_on_where_the_last_flush_was(parts: Parts, values: dict[str, Any], tmp_path: Path) -> None:
    upload = "upl_" + "0" * 23
    known = append(parts, upload, 0, [], b"one", b"two", b"!lost")
    other = open_bucket(Settings(**{**values, "home": tmp_path / "other"})).open_parts()
    known = append(other, upload, 6, known, b"three")
    append(parts, upload, 6, known[:2], b"of a writer that lost its lease")
    other.assemble(upload, known, 11, tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == b"onetwothree"
    assert list(other.ids(-60)) == [upload]
    assert list(other.ids(3600)) == []
    parts.remove(upload)
    assert list(other.ids(-60)) == []
    assert os.listdir(values["home"] / "cache" / "tmp") == []


def test_less_than_was_acknowledged_is_lost(parts: Parts, tmp_path: Path) -> None:
    upload = "upl_" + "1" * 23
    known = append(parts, upload, 0, [], b"one", b"two")
    for offset, wrong in ((5, known), (6, known[:1]), (3, known[1:]), (0, ["nonsense"])):
        with pytest.raises(PartsLost):
            parts.writer(upload, offset, wrong, "me")
    parts.remove(upload)
    with pytest.raises(PartsLost):
        parts.assemble(upload, known, 6, tmp_path / "whole")


def test_no_key_is_made_from_anything_else(parts: Parts) -> None:
    for name in ("", "../blobs", "upl_", "upl_" + "A" * 23):
        with pytest.raises(ValueError, match="not the id"):
            parts.remove(name)
