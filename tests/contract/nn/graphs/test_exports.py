"""A module and its document: equal bit for bit in training and in evaluation, or refused with the reason."""

import copy
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from contract.architectures import CATALOGUE
from contract.networks import checks
from contract.networks.document import Document, canonical
from contract.networks.errors import NetworkError
from contract.nn import registry
from contract.nn.codec import load_state, manifest, save_state
from contract.nn.graphs.comparing import samples
from contract.nn.graphs.exporting import export
from contract.nn.graphs.module import GraphNetwork
from contract.nn.seeding import global_seed
from contract.wire.federations import Task
from tests.contract.nn.graphs import modules

OWN: dict[str, tuple[Callable[[], nn.Module], list[int], str]] = {
    "residual": (modules.Residual, [3, 6, 6], "float32"),
    "lstm": (modules.Lstm, [5], "int64"),
    "gru": (modules.Gru, [5, 4], "float32"),
    "transformer": (modules.Transformer, [6], "int64"),
    "u-net": (modules.UNet, [1, 8, 8], "float32"),
    "convnext": (modules.ConvNext, [3, 8, 8], "float32"),
    "tied": (modules.Tied, [6], "float32"),
}
SMALL: dict[str, dict[str, object]] = {
    "mlp": {"hidden": [8]},
    "cnn-digits": {},
    "convnet": {},
    "resnet-8": {"norm": "gn"},
    "vgg-9": {"norm": "bn"},
    "lstm": {"vocab_size": 20, "width": 8},
    "transformer-tiny": {"vocab_size": 20},
}
LARGE = sorted(
    name
    for name, entry in CATALOGUE.items()
    if entry.role == "classifier" and entry.server_side and name not in SMALL and name != "resnet-8-bin"
)


def rebuilt(document: Document, module: nn.Module) -> GraphNetwork:
    """Return the network of a document as somebody else reads it, with a module's weights."""
    network = GraphNetwork(checks.read(canonical(document)))
    network.load_state_dict(module.state_dict())
    return network


def trained(module: nn.Module, document: Document) -> tuple[dict[str, Tensor], Tensor]:
    """Return state and outputs in evaluation after three steps of uneven batches."""
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.002, momentum=0.9)
    for batch in (6, 3, 5):
        with global_seed(batch):
            output = module(samples(document.input, batch, 8))
            optimizer.zero_grad()
            output.square().mean().backward()
            optimizer.step()
    # with gradients: without them torch's own encoder takes a fused kernel, which rounds otherwise
    return module.state_dict(), module.eval()(samples(document.input, 4, 8)).detach()


def assert_equal(module: nn.Module, document: Document) -> None:
    network = rebuilt(document, module)
    assert [name for name, _ in network.named_parameters()] == [name for name, _ in module.named_parameters()]
    wanted, outputs = trained(copy.deepcopy(module), document)
    found, others = trained(network, document)
    assert list(found) == list(wanted)
    assert [name for name in wanted if not torch.equal(wanted[name], found[name])] == []
    assert torch.isfinite(outputs).all()
    assert torch.equal(outputs, others)


@pytest.mark.parametrize("name", OWN)
def test_a_module_of_ones_own_is_its_document(name: str) -> None:
    make, shape, dtype = OWN[name]
    with global_seed(1):
        module = make()
    assert_equal(module, export(module, shape, dtype))


def _from_catalogue(name: str, options: dict[str, object]) -> tuple[nn.Module, list[int], str]:
    reads = CATALOGUE[name].reads
    edge = 32 if name in ("convnet", "vgg-11", "vgg-16", "vgg-19") else 8
    shape = [6] if reads == "tokens" else [3, edge, edge]
    dtype = "int64" if reads == "tokens" else "float32"
    task = Task.model_validate({"num_classes": 3, "input": {"shape": shape, "dtype": dtype}})
    return registry.initialise(name, options, task, 1), shape, dtype


@pytest.mark.parametrize("name", SMALL)
def test_a_classifier_of_the_catalogue_is_its_document(name: str) -> None:
    module, shape, dtype = _from_catalogue(name, SMALL[name])
    document = export(module, shape, dtype)
    assert document.train.features is not None
    assert_equal(module, document)


@pytest.mark.chaos
@pytest.mark.parametrize("name", LARGE)
def test_the_others_are_theirs(name: str) -> None:
    module, shape, dtype = _from_catalogue(name, {})
    assert_equal(module, export(module, shape, dtype))


def test_a_gradient_of_its_own_is_lost_and_refused() -> None:
    module, shape, dtype = _from_catalogue("resnet-8-bin", {})
    with pytest.raises(NetworkError, match=r"gradient of parameter 'backbone.1.0.body.0.weight' differs"):
        export(module, shape, dtype)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (modules.Branching, r"cannot trace it at .*modules.py:\d+ \(forward: if x.sum\(\) > 0:\)"),
        (modules.Fixed, r"specialized it to be a constant \(5\).*take x.shape\[0\] for it, not len\(x\)"),
        (modules.Masked, r"also wants 'mask'; .*: give the others defaults; where they are inputs too, .*'custom'"),
        (modules.Sorted, r"operator 'aten.sort.default' .*x.sort\(1\)\[0\].* is not on the list"),
        (modules.Paused, r"a part with a graph of its own"),
        (modules.Idle, r"parameter 'spare.weight', and 1 more: no node reads it"),
        (modules.Pair, r"forward: returns a tuple of 2 \(a tensor of .*an object or dict that calls it 'logits'"),
    ],
)
def test_what_no_document_can_hold_is_told_to_the_author(make: Callable[[], nn.Module], said: str) -> None:
    with pytest.raises(NetworkError, match=said):
        export(make(), [6])


def test_what_calls_its_output_logits_is_the_network_that_gives_them() -> None:
    document = export(modules.Named(), [6])
    assert document == export(modules.Plain(), [6])
    assert {each.name for each in document.tensors} == set(modules.Named().state_dict())


def test_torch_says_nothing_of_a_graph_that_is_refused(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(NetworkError):
        export(modules.Branching(), [6])
    assert capfd.readouterr().err == "" and not [each for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("make", "form", "said"),
    [
        (modules.Twice, {"head": "fc"}, r"'fc' runs 2 times"),
        (modules.Plain, {"head": "last"}, r"^head: the module has no part 'last'; there are fc"),
        (modules.Plain, {"features": "last"}, r"^features: the module has no part 'last'"),
        (modules.Shortcut, {"features": "features"}, r"the output reads more than 'linear'"),
    ],
)
def test_features_that_are_none_are_refused(make: Callable[[], nn.Module], form: dict[str, str], said: str) -> None:
    with pytest.raises(NetworkError, match=said):
        export(make(), [6], **form)


def test_named_features_and_head_make_the_output() -> None:
    module = modules.Batched().eval()
    network = rebuilt(export(module, [6], head="classifier"), module).eval()
    x = torch.randn(4, 6)
    assert torch.equal(network.features(x), module.features(x))  # type: ignore[operator]
    assert torch.equal(network.head(network.features(x)), module(x))  # type: ignore[operator]
    assert list(network.state_dict()) == list(module.state_dict())


def test_the_module_stays_as_it_is() -> None:
    module = modules.Residual().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.random.get_rng_state()
    export(module, [3, 6, 6])
    assert module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.fixture(scope="module")
def residual() -> tuple[modules.Residual, Document]:
    with global_seed(3):
        module = modules.Residual()
    return module, export(module, [3, 6, 6])


def test_the_same_module_has_the_same_document(residual: tuple[modules.Residual, Document]) -> None:
    assert canonical(export(residual[0], [3, 6, 6])) == canonical(residual[1])


def test_weights_go_through_a_file(residual: tuple[modules.Residual, Document], tmp_path: Path) -> None:
    module, document = residual
    save_state(module, tmp_path / "net.safetensors")
    network = GraphNetwork(document)
    load_state(network, tmp_path / "net.safetensors")
    assert manifest(network) == manifest(module)
    assert torch.equal(network.eval()(torch.ones(2, 3, 6, 6)), module.eval()(torch.ones(2, 3, 6, 6)))


def test_a_batch_norm_has_a_mode_of_its_own(residual: tuple[modules.Residual, Document]) -> None:
    """As for any module: a batch of one in training, and statistics computed anew in evaluation."""
    module, document = residual
    pair = [copy.deepcopy(module), rebuilt(document, module)]
    x = torch.randn(6, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    found = []
    for each in pair:
        norms = [part for part in each.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
        each.train()
        for norm in norms:
            norm.eval()
        with global_seed(1):
            one = each(x[:1])
        each.eval()
        for norm in norms:
            norm.train()
            norm.reset_running_stats()
            norm.momentum = None
        each(x)
        each(x[:3])
        found.append((one, each.state_dict()))
    (one, state), (other, others) = found
    assert torch.equal(one, other)
    assert all(torch.equal(value, others[name]) for name, value in state.items())
    assert int(state["norm.num_batches_tracked"]) == 2


def test_a_copy_has_weights_of_its_own(residual: tuple[modules.Residual, Document]) -> None:
    network = rebuilt(residual[1], residual[0]).eval()
    x = torch.ones(2, 3, 6, 6)
    before = network(x)
    spare = copy.deepcopy(network)
    with torch.no_grad():
        for value in spare.parameters():
            value.zero_()
    assert torch.equal(network(x), before)
    assert not torch.equal(spare(x), before)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (torch.zeros(2, 4, dtype=torch.int64), r"reads int64 \[B, 5\], and was given int64 \[2, 4\]"),
        (torch.zeros(2, 5), r"was given float32"),
        (torch.full((2, 5), 11), r"token ids go from 11 to 11, but the network has 11"),
        (torch.full((2, 5), -1), r"token ids go from -1"),
    ],
)
def test_inputs_are_checked_before_anything_runs(inputs: Tensor, said: str) -> None:
    module = modules.Lstm()
    network = rebuilt(_lstm(), module)
    with pytest.raises(ValueError, match=said):
        network(inputs)


_kept: list[Document] = []


def _lstm() -> Document:
    if not _kept:
        _kept.append(export(modules.Lstm(), [5], "int64"))
    return _kept[0]
