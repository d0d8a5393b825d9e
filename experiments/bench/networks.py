"""What a network costs as a document's graph, beside the module that it is of: a batch forward and backward."""

from collections.abc import Callable, Iterator

import torch
from torch import nn

from contract.nn.graphs.comparing import samples
from contract.nn.graphs.exporting import export
from contract.nn.graphs.module import GraphNetwork
from contract.nn.registry import build
from contract.wire.federations import Task
from experiments.bench.measuring import Bench, Figure, timed

NETWORKS = ("cnn-digits", "resnet-8", "resnet-20", "vgg-11", "mobilenet-v2", "lstm", "transformer-mini")
QUICK = ("cnn-digits", "resnet-8", "transformer-mini")


def _pass(module: nn.Module, inputs: torch.Tensor) -> Callable[[], None]:
    def work() -> None:
        module.zero_grad()
        module(inputs).square().mean().backward()

    return work


def both(name: str, batch: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return a pass in training by a network's graph, and by its module."""
    tokens = name.startswith(("lstm", "transformer"))
    shape, dtype = ([32], "int64") if tokens else ([3, 32, 32], "float32")
    task = Task.model_validate({"num_classes": 10, "input": {"shape": shape, "dtype": dtype}})
    module = build(name, {}, task=task)
    document = export(module, shape, dtype)
    network = GraphNetwork(document)
    network.load_state_dict(module.state_dict())
    inputs = samples(document.input, batch, network.words)
    return _pass(network.train(), inputs), _pass(module.train(), inputs)


def measure(bench: Bench) -> Iterator[Figure]:
    """One figure a network."""
    for name in bench.pick(NETWORKS, QUICK):
        graph, plain = both(name, bench.pick(64, 32))
        plain()
        title = f"{name}: a training pass of its graph"
        pairs = bench.turns(title, timed(graph), timed(plain), bench.pick(7, 5))
        yield Figure(title, "s", "its module", pairs)
