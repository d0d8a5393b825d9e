"""The arithmetic of a round on several GPUs, by hand."""

import math
from pathlib import Path

import pytest

from experiments.scale import Round, draw, store_is_the_limit, times

ROUND = Round(teachers=10, samples=1000, flops=10**6, model=10**6, values=25)
"""10^10 operations; 10 MB of models; 4 x 10 x 1000 x 25 = 1 MB of logits."""


def test_one_gpu_brings_all_updates_and_asks() -> None:
    """10^10 at 10^9 a second are 10 s; 10 MB at 1 MB/s are 10 s."""
    alone = times(ROUND, 1, 1e9, 1e6)
    assert (alone.asking, alone.bringing, alone.whole) == (10.0, 10.0, 20.0)


def test_five_share_the_store_and_the_rounds_worker_brings_the_rest() -> None:
    """They ask for 2 s. 11 MB through a store of 1 MB/s are 11 s; then 8 MB of models and 1 MB of logits are 9 s."""
    found = times(ROUND, 5, 1e9, 1e6)
    assert found.asking == 2.0
    assert found.bringing == pytest.approx(20.0)
    wide = times(ROUND, 5, 1e9, math.inf, link=1e6)
    assert wide.bringing == pytest.approx(11 / 5 + 9)


def test_the_store_is_the_limit_from_where_it_takes_longer_than_the_gpus() -> None:
    """At 10 MB/s: 4 GPUs, 1.1 + 0.85 s to 2.5 s; 5, 1.1 + 0.9 to 2, which is no longer; 6, 1.1 + 0.93 to 1.67."""
    assert store_is_the_limit(ROUND, 1e9, 10e6) == 6
    assert store_is_the_limit(ROUND, 1e6, math.inf) is None


def test_it_is_drawn(tmp_path: Path) -> None:
    draw(tmp_path / "img" / "x.png", [("a round", ROUND)], 1e9)
    assert (tmp_path / "img" / "x.png").stat().st_size > 1000
