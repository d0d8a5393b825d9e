"""The rows of the operators' page say what the code says."""

import re

import pytest

from service.config import Settings
from tools import limits


def test_every_setting_has_a_row_with_its_bounds() -> None:
    rows = {row[0]: row for row in limits.settings()}
    assert rows.keys() == {f"POTSTILL_{name.upper()}" for name in Settings.model_fields}
    assert rows["POTSTILL_MAX_UPLOAD_BYTES"][2:] == ["2 GiB", "at least 1 KiB", "413"]
    assert rows["POTSTILL_LEASE_SECONDS"][2:] == ["30 seconds", "above 0", ""]
    assert rows["POTSTILL_PORT"][2:] == ["8080", "at least 0, at most 65535", ""]
    assert rows["POTSTILL_MAX_CLIENTS"][2:4] == ["10,000 devices", "at least 1"]
    assert rows["POTSTILL_SECRET"][2] == ""


def test_fixed_limits_say_the_numbers_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.app.LONG_POLLS_PER_TOKEN", 7)
    [polls] = [row for row in limits.fixed() if row[0] == "open long polls"]
    assert polls[1] == "7 of a token, 5,000 of a process"
    assert all(re.search(r"\d|two|half", row[1]) for row in limits.fixed())
