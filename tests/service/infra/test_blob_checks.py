import hashlib
import os
import threading
from pathlib import Path

import pytest

from service.infra.blob_checks import BlobFaults, Inspection


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
