import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

from service.infra.blob_checks import BlobFaults, Inspection
from service.infra.blobs import BLOCK
from service.infra.sums import Sums

CONTENT = bytes(range(256)) * (2 * BLOCK // 256) + b"the last of three pieces"
DIGEST = f"sha256-{hashlib.sha256(CONTENT).hexdigest()}"
CHECKSUM = f"xxh3-{xxhash.xxh3_128_hexdigest(CONTENT)}"
WRONG = f"xxh3-{'0' * 32}"


def turn_bit(place: int) -> Callable[[bytearray], None]:
    def hurt(content: bytearray) -> None:
        content[place] ^= 1

    return hurt


def cut(content: bytearray) -> None:
    del content[-1:]


def inspected(path: Path, checksum: str | None) -> Inspection:
    with Inspection({DIGEST: path}, checksums={} if checksum is None else {DIGEST: checksum}) as inspection:
        inspection.check()
    return inspection


def test_a_file_with_its_checksum_is_not_compared_with_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    monkeypatch.delattr("service.infra.blob_checks.Sums")
    assert inspected(tmp_path / "file", CHECKSUM).mended == {}


@pytest.mark.parametrize("known", [None, WRONG, "another-algorithm"])
def test_the_digest_decides_where_the_checksum_is_unknown_or_wrong(
    tmp_path: Path, known: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    inspection = inspected(tmp_path / "file", known)
    assert (inspection.faults, inspection.mended) == ([], {DIGEST: CHECKSUM})
    assert [DIGEST in each.message for each in caplog.records] == ([] if known is None else [True])


@pytest.mark.parametrize("known", [CHECKSUM, WRONG, None])
@pytest.mark.parametrize(
    "hurt",
    [
        turn_bit(0),
        turn_bit(BLOCK - 1),
        turn_bit(BLOCK),
        turn_bit(-1),
        cut,
        bytearray.clear,
        lambda made: made.append(0),
    ],
)
def test_damage_anywhere_is_found(tmp_path: Path, hurt: Callable[[bytearray], None], known: str | None) -> None:
    content = bytearray(CONTENT)
    hurt(content)
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BlobFaults) as found:
        inspected(tmp_path / "file", known)
    assert [(fault.digest, fault.state) for fault in found.value.faults] == [(DIGEST, "damaged")]


def test_sums_do_not_depend_on_how_bytes_come() -> None:
    sums = Sums()
    for start in range(0, len(CONTENT), 77_777):
        sums.update(memoryview(CONTENT)[start : start + 77_777])
    assert (sums.digest, sums.checksum, sums.size) == (DIGEST, CHECKSUM, len(CONTENT))


def test_whoever_waits_for_an_inspection_helps_with_it(tmp_path: Path) -> None:
    """One file is a pipe that ends when the damage of the other one is known: one reader alone would not get there."""
    slow, bad = tmp_path / "slow", tmp_path / "bad"
    os.mkfifo(slow)
    bad.write_bytes(b"not what it should be")
    told, waited = threading.Event(), list[bool]()

    def end_slow() -> None:
        waited.append(told.wait(5))
        slow.open("wb").close()

    other = threading.Thread(target=end_slow)
    with Inspection(
        {f"sha256-{hashlib.sha256().hexdigest()}": slow, f"sha256-{'0' * 64}": bad}, told.set
    ) as inspection:
        other.start()
        with pytest.raises(BlobFaults) as found:
            inspection.check()
    other.join()
    assert waited == [True]
    assert [fault.state for fault in found.value.faults] == ["damaged"]
