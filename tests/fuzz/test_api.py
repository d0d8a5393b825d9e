"""A short turn of the API's fuzz run; `make fuzzapi` runs it for as long as you like."""

import warnings
from pathlib import Path

import pytest

from tools.fuzz.api import Target, fuzz


@pytest.mark.slow
def test_every_answer_is_a_documented_one(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = Target(tmp_path)
        try:
            seen, wrong = fuzz(target, count=2, seed=5)
            log = target.deployment.log("api")
        finally:
            target.deployment.close()
    assert not wrong, wrong[:5]
    assert "Traceback" not in log
    assert len({label for label, _ in seen}) > 40
