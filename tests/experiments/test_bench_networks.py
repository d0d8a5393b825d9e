"""The bench of graphs, at its smallest."""

from experiments.bench.networks import measure


def test_both_sides_are_measured() -> None:
    nodes, plain, graph = measure("mlp", 4, 2)
    assert nodes == 6
    assert plain > 0 and graph > 0
