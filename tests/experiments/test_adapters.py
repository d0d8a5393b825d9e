"""The comparison of adapters with full training, as small as it goes: what travels is exact whatever is learnt."""

import argparse

import pytest

from experiments import adapters

SMALL = {"server": 60, "pretrain": 1, "samples": 60, "clients": 2, "alpha": 5.0, "rounds": 2, "epochs": 1, "rank": 2}


@pytest.mark.timeout(300)
def test_adapters_send_a_fraction_of_the_network() -> None:
    found = adapters.compare(argparse.Namespace(data="made-up", data_dir=None, seeds=1, **SMALL))
    full, factors, frozen, head = (rows[0] for rows in found.values())
    # the encoder's embedding alone has 2048 * 128 floats; an adapter of rank 2 has 8 factors a layer
    assert full.up > 4 * 2048 * 128
    width = 128
    inward, outward, up, down = (width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)
    a, b = (2 * 2 * sum(edge[side] for edge in (inward, outward, up, down)) for side in (0, 1))
    top = width * adapters.CLASSES + adapters.CLASSES
    for row, values in ((factors, a + b + top), (frozen, b + top), (head, top)):
        assert 4 * values < row.up < 4 * values + 6000  # and a header
        assert row.first > full.first  # the base, once
        assert row.down < 4 * values + 6000
    assert full.before == head.before == factors.before  # a fresh adapter changes nothing
    assert "| LoRA 2, factors |" in adapters.table(found)
