"""`python -m experiments.bench.networks`: what a network costs as a document's graph, beside the module that it is of.

Forward and backward of one batch, in training. The ratio is what tells: seconds are this machine's.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

from contract.nn.graphs.comparing import samples
from contract.nn.graphs.exporting import export
from contract.nn.graphs.module import GraphNetwork
from contract.nn.registry import build
from contract.wire.federations import Task
from potstill.console import print_table

NETWORKS = ("cnn-digits", "resnet-8", "resnet-20", "vgg-11", "mobilenet-v2", "lstm", "transformer-mini")


def _pass(module: nn.Module, inputs: torch.Tensor) -> Callable[[], None]:
    def work() -> None:
        module.zero_grad()
        module(inputs).square().mean().backward()

    return work


def _seconds(both: tuple[Callable[[], None], ...], times: int) -> list[float]:
    """Return the shortest of several runs of each, in turns: the others were held up."""
    found: list[list[float]] = [[] for _ in both]
    for _ in range(times):
        for number, work in enumerate(both):
            begun = time.perf_counter()
            work()
            found[number].append(time.perf_counter() - begun)
    return [min(each) for each in found]


def measure(name: str, batch: int, times: int) -> tuple[int, float, float]:
    """Return the nodes of a network's training graph, and the seconds of a pass by the module and by the graph."""
    tokens = name.startswith(("lstm", "transformer"))
    shape, dtype = ([32], "int64") if tokens else ([3, 32, 32], "float32")
    task = Task.model_validate({"num_classes": 10, "input": {"shape": shape, "dtype": dtype}})
    module = build(name, {}, task=task)
    document = export(module, shape, dtype)
    network = GraphNetwork(document)
    network.load_state_dict(module.state_dict())
    inputs = samples(document.input, batch, network.words)
    both = (_pass(module.train(), inputs), _pass(network.train(), inputs))
    plain, graph = _seconds(both, times)
    return len(document.train.nodes), plain, graph


def main() -> None:
    """Print both sides and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("names", nargs="*", default=NETWORKS)
    given = parser.parse_args()
    rows = []
    for name in given.names:
        nodes, plain, graph = measure(name, given.batch, given.times)
        rows.append([name, nodes, given.batch, f"{plain:.4f}", f"{graph:.4f}", f"{graph / plain:.2f}"])
    print_table(["network", "nodes", "batch", "module, s", "graph, s", "ratio"], rows)


if __name__ == "__main__":
    main()
