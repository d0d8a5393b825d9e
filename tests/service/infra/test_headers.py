"""Headers that are asked for again are read once, and few are kept."""

from pathlib import Path

import numpy as np
import pytest

from contract.tensors import Header, write_file
from service.config import Settings
from service.infra import headers
from service.infra.blob_store import open_blobs
from service.infra.blobs import BlobFault
from service.infra.headers import Headers
from service.infra.sums import sums_of


class Reading:
    """Reads headers, and notes of what."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def of(self, kept: Headers, digest: str, tensors: int = 0) -> Header:
        def read() -> Header:
            self.read.append(digest)
            return Header(dict.fromkeys(map(str, range(tensors))))  # type: ignore[arg-type]

        return kept.of(digest, read)


def test_a_header_is_read_once_as_long_as_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_KEPT", 2)
    kept, reading = Headers(), Reading()
    first = reading.of(kept, "a")
    for digest in ("b", "a", "c", "a", "b"):  # c takes the place of b, then b that of c
        reading.of(kept, digest)
    assert reading.read == ["a", "b", "c", "b"]
    assert reading.of(kept, "a") is first


def test_a_header_of_very_many_tensors_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_LARGEST", 2)
    kept, reading = Headers(), Reading()
    for tensors in (2, 2, 3, 3):
        reading.of(kept, str(tensors), tensors)
    assert reading.read == ["2", "3", "3"]


def test_damage_is_told_although_the_header_is_known(tmp_path: Path) -> None:
    blobs = open_blobs(Settings(home=tmp_path))
    temp = blobs.scratch.temp()
    write_file(temp, {"a": np.zeros(4, dtype=np.float32)})
    digest = sums_of(temp).digest
    blobs.store.prepare(temp, digest)
    blobs.store.keep(temp, digest)
    assert list(blobs.store.header(digest).tensors) == ["a"]
    path = blobs.cache.path(digest)
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(BlobFault):
        blobs.store.header(digest)
