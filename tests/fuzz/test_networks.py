"""A short turn of the fuzz run of documents; `python -m tools.fuzz.networks` runs it for as long as you like."""

import random

import pytest

from contract.nn.graphs import shapes
from tests.contract.networks.documents import GOOD, layers
from tools.fuzz.networks import BOUND, fuzz


def test_bent_documents_end_in_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "LARGEST", BOUND)
    monkeypatch.setattr(shapes, "ALL", 10 * BOUND)
    whole = [GOOD, layers([4, 6, 5, 3], norm=True), layers([4, 5, 1], "discriminator")]
    seen = fuzz(whole, random.Random(11), count=1200, seconds=20)
    assert seen["checks"] > 100
    assert seen["shapes"] > 5
    assert seen["trains"] > 2
