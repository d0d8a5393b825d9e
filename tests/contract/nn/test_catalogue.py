"""What every published architecture must do, by being in the catalogue."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from contract import architectures as catalogue
from contract.nn import codec, registry
from contract.nn.architectures.critic import Halved
from contract.wire.federations import Task

# Published: none of these may change. 10 classes, images [3, 32, 32], texts of 32 tokens, default options.
PARAMETERS = {
    "mlp": 201_482,
    "cnn-digits": 25_674,
    "convnet": 122_570,
    "resnet-8": 78_042,
    "resnet-20": 272_474,
    "resnet-32": 466_906,
    "resnet-44": 661_338,
    "resnet-56": 855_770,
    "resnet-18": 11_173_962,
    "resnet-34": 21_282_122,
    "resnet-50": 23_520_842,
    "resnet-8-bin": 78_042,
    "wrn-16-2": 691_674,
    "vgg-9": 3_491_530,
    "vgg-11": 9_231_114,
    "vgg-16": 14_728_266,
    "vgg-19": 20_040_522,
    "mobilenet-v2": 2_236_682,
    "shufflenet-v2": 1_263_854,
    "lstm": 1_181_962,
    "transformer-tiny": 1_450_762,
    "transformer-mini": 5_267_466,
    "unet-small": 117_834,
    "transformer-causal-tiny": 1_450_762,
    "disc-mlp": 200_897,
    "disc-cnn-digits": 7_137,
    "disc-cnn-4": 663_296,
    "disc-cnn-mlp": 142_592,
    "disc-resnet-8": 77_457,
    "critic-resnet": 1_053_825,
    "gen-mlp": 417_024,
    "gen-resnet": 1_204_483,
    "gen-dcgan": 1_068_931,
}
RUNNABLE = [name for name, entry in catalogue.CATALOGUE.items() if entry.server_side]
CLASSIFIERS = [
    name
    for name in RUNNABLE
    if "classification" in catalogue.CATALOGUE[name].tasks and catalogue.CATALOGUE[name].role == "classifier"
]
NEEDS_32 = {"convnet", "vgg-11", "vgg-16", "vgg-19", "disc-cnn-4"}
LENGTH = 8


def is_text(name: str) -> bool:
    return catalogue.CATALOGUE[name].reads == "tokens"


def task_for(name: str, edge: int | None = None, length: int = LENGTH, classes: int = 5) -> Task:
    edge = edge or (32 if name in NEEDS_32 else 8)
    spec = {"shape": [length], "dtype": "int64"} if is_text(name) else {"shape": [3, edge, edge]}
    tasks = catalogue.CATALOGUE[name].tasks
    kind = "classification" if "classification" in tasks else min(tasks)
    return Task.model_validate({"kind": kind, "num_classes": classes, "input": spec})


def sample(name: str, module: nn.Module, task: Task) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    if is_text(name):
        ids = torch.randint(1, 500, (2, *task.input.shape), generator=draw)
        ids[0, 3:] = 0
        return ids
    shape = [module.latent] if catalogue.CATALOGUE[name].role == "generator" else task.input.shape
    return torch.randn(2, *shape, generator=draw)


@dataclass(frozen=True)
class Case:
    """One architecture built with seed 3; the tests of a name share it: the largest have 24 million weights."""

    name: str
    task: Task
    module: nn.Module
    global_state: tuple[torch.Tensor, torch.Tensor]

    @property
    def inputs(self) -> torch.Tensor:
        return sample(self.name, self.module, self.task)


@pytest.fixture(scope="module", params=RUNNABLE)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    task = task_for(request.param)
    before = torch.random.get_rng_state()
    module = registry.initialise(request.param, {}, task, 3)
    yield Case(request.param, task, module, (before, torch.random.get_rng_state()))


def test_every_name_has_its_frozen_count() -> None:
    counts = {}
    for name in RUNNABLE:
        with torch.device("meta"):  # shapes only
            module = registry.build(name, {}, task=task_for(name, edge=32, length=32, classes=10))
        counts[name] = sum(parameter.numel() for parameter in module.parameters())
    assert counts == PARAMETERS


def test_the_page_lists_the_catalogue_with_these_counts() -> None:
    page = (Path(__file__).parents[3] / "docs" / "architectures.md").read_text()
    rows = re.findall(r"^\| `([\w.-]+)` \| ([\d,]*) ?\|", page, re.MULTILINE)
    assert {name: int(count.replace(",", "")) for name, count in rows if count} == PARAMETERS
    assert [name for name, count in rows if not count] == ["custom"]


def test_initial_weights_come_from_the_seed_alone(case: Case) -> None:
    assert torch.equal(*case.global_state)
    torch.manual_seed(8)
    again = registry.initialise(case.name, {}, case.task, 3).state_dict()
    first = case.module.state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)


def test_another_seed_gives_other_weights(case: Case) -> None:
    other = registry.initialise(case.name, {}, case.task, 4).state_dict()
    first = case.module.state_dict()
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_the_codec_keeps_every_bit(case: Case, tmp_path: Path) -> None:
    codec.save_state(case.module, tmp_path / "model")
    with torch.device("meta"):
        other = registry.build(case.name, {}, task=case.task)
    other = other.to_empty(device="cpu")
    codec.load_state(other, tmp_path / "model")
    first, second = case.module.state_dict(), other.state_dict()
    assert list(first) == list(second)
    assert all(first[key].dtype == second[key].dtype and torch.equal(first[key], second[key]) for key in first)


def test_outputs_have_the_role_s_shape(case: Case) -> None:
    with torch.no_grad():
        outputs = case.module.eval()(case.inputs)
    role = catalogue.CATALOGUE[case.name].role
    assert (
        tuple(outputs.shape)
        == {
            "classifier": (2, *case.task.output_shape),
            "discriminator": (2,),
            "generator": (2, *case.task.input.shape),
        }[role]
    )
    assert role != "generator" or outputs.abs().max() <= 1


def test_logits_are_the_head_of_the_features(case: Case) -> None:
    if case.name not in CLASSIFIERS:
        assert not hasattr(case.module, "features")
        return
    with torch.no_grad():
        module: Any = case.module.eval()
        features = module.features(case.inputs)
        assert features.ndim == 2
        assert torch.equal(module(case.inputs), module.head(features))


def test_a_step_back_reaches_every_parameter(case: Case) -> None:
    module = case.module.train()
    outputs = module(case.inputs)
    (outputs * torch.linspace(1, 2, outputs.numel()).view_as(outputs)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    module.zero_grad(set_to_none=True)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_common_head_has_the_same_tensors_everywhere(name: str) -> None:
    """Algorithms A9: adapter to 128, head = Linear(128, 128), ReLU, Linear(128, C), prefix `head.`."""
    task = task_for(name)
    with torch.device("meta"):
        module: Any = registry.build(name, {"common_head": True}, task=task)
        inputs = sample(name, module, task).to("meta") if not is_text(name) else None
    shapes = {key: tuple(value.shape) for key, value in module.state_dict().items() if key.startswith("head.")}
    assert shapes == {
        "head.0.weight": (128, 128),
        "head.0.bias": (128,),
        "head.2.weight": (5, 128),
        "head.2.bias": (5,),
    }
    if inputs is not None:
        assert tuple(module.features(inputs).shape) == (2, 128)


@pytest.mark.parametrize("name", [n for n in RUNNABLE if catalogue.CATALOGUE[n].role == "discriminator"])
def test_output_probability_is_the_sigmoid_of_the_same_tensors(name: str) -> None:
    task = task_for(name)
    scores = registry.initialise(name, {}, task, 3).eval()
    probabilities = registry.initialise(name, {"output": "probability"}, task, 3).eval()
    first, second = scores.state_dict(), probabilities.state_dict()
    assert list(first) == list(second) and all(torch.equal(first[key], second[key]) for key in first)
    inputs = sample(name, scores, task)
    with torch.no_grad():
        assert torch.equal(probabilities(inputs), torch.sigmoid(scores(inputs)))
    assert catalogue.output_of(name, {}) == "score"
    assert catalogue.output_of(name, {"output": "probability"}) == "probability"


VARIANTS = [
    *((f"resnet-{depth}", {"norm": "gn"}) for depth in (8, 20, 18, 50)),
    ("resnet-8", {"norm": "gn", "groups": 16}),
    ("wrn-16-2", {"norm": "gn"}),
    ("resnet-8-bin", {"norm": "gn"}),
    ("disc-resnet-8", {"norm": "gn"}),
    ("critic-resnet", {"norm": "ln", "width": 8}),
    ("vgg-9", {"norm": "bn"}),
    ("vgg-11", {"norm": "none"}),
    ("lstm", {"width": 16, "layers": 2, "vocab_size": 600}),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_other_norms_and_sizes(name: str, options: dict[str, object]) -> None:
    task = task_for(name)
    with torch.device("meta"):
        module = registry.build(name, options, task=task)
    kinds = {type(layer) for layer in module.modules()}
    assert (nn.BatchNorm2d in kinds) == (options.get("norm") == "bn")
    assert (nn.GroupNorm in kinds) == (options.get("norm") in ("gn", "ln"))


def test_a_group_norm_network_scores_each_sample_by_itself() -> None:
    module = registry.initialise("disc-resnet-8", {"norm": "gn"}, task_for("disc-resnet-8"), 1)
    inputs = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(module(inputs)[:1], module(inputs[:1]))


def test_fedgo_s_discriminators_have_the_paper_s_weights() -> None:
    """Table 14 counts 662,528 and 142,336; A14: convolutions (and the linear layer) without bias or BatchNorm."""
    counts = {}
    for name in ("disc-cnn-4", "disc-cnn-mlp"):
        module = registry.initialise(name, {}, task_for(name, edge=32), 0)
        layers = [layer for layer in module.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
        assert all(layer.bias is None for layer in layers)
        counts[name] = sum(layer.weight.numel() for layer in layers)
        assert torch.cat([layer.weight.flatten() for layer in layers]).std().item() == pytest.approx(0.02, rel=0.01)
    assert counts == {"disc-cnn-4": 662_528, "disc-cnn-mlp": 142_336}


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        ("resnet-18", [3, 32], "float32", r"task\.input\.shape is \[3, 32\]"),
        ("resnet-18", [3, 4, 32], "float32", "at least 8x8"),
        ("vgg-16", [3, 31, 32], "float32", r"at least 32x32; task\.input\.shape"),
        ("disc-cnn-4", [3, 28, 28], "float32", r"32x32 images; task\.input\.shape"),
        ("gen-resnet", [3, 28, 28], "float32", r"multiples of 8; task\.input\.shape"),
        ("gen-dcgan", [1, 8, 9], "float32", r"multiples of 8; task\.input\.shape"),
        ("shufflenet-v2", [16], "int64", r"task\.input\.dtype"),
        ("lstm", [16], "float32", r"task\.input\.dtype"),
        ("transformer-tiny", [4, 4], "int64", r"task\.input\.shape is \[4, 4\]"),
    ],
)
def test_a_wrong_input_names_the_field(name: str, shape: list[int], dtype: str, message: str) -> None:
    task = Task.model_validate({"num_classes": 5, "input": {"shape": shape, "dtype": dtype}})
    with pytest.raises(ValueError, match=message):
        registry.build(name, {}, task=task)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_projection_head_is_between_features_and_the_last_layer(name: str) -> None:
    """MOON section 3.2: encoder, projection head, output layer; without the option, nothing is otherwise."""
    task = task_for(name)
    plain: Any = registry.initialise(name, {}, task, 3)
    assert {k: v.shape for k, v in registry.initialise(name, {"projection": None}, task, 3).state_dict().items()} == {
        k: v.shape for k, v in plain.state_dict().items()
    }
    module: Any = registry.initialise(name, {"projection": 7}, task, 3).eval()
    batch = sample(name, module, task)
    inner = plain.eval().features(batch).shape[1]
    assert [tuple(each.weight.shape) for each in (*module.projection[::2], module.head)] == [
        (inner, inner), (7, inner), (task.num_classes, 7),
    ]  # fmt: skip
    assert module.features(batch).shape == (2, 7)
    assert torch.equal(module(batch), module.head(module.features(batch)))
    assert list(module.state_dict())[-2:] == ["head.weight", "head.bias"]
    with pytest.raises(ValueError, match="take one of the two"):
        registry.build(name, {"projection": 7, "common_head": True}, task=task)


@pytest.mark.parametrize("norm", ["none", "ln"])
def test_wgan_gp_s_critic_scores_each_sample_by_itself_and_halves_by_means(norm: str) -> None:
    options = {"width": 4, "norm": norm}
    module = registry.initialise("critic-resnet", options, task_for("critic-resnet"), 1)
    inputs = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(module(inputs)[1:2], module(inputs[1:2]))
    halved = nn.functional.avg_pool2d(inputs, 2)
    torch.testing.assert_close(Halved()(inputs), halved)
    catalogue.find("critic-resnet").check_per_sample(options, "be a critic")


@pytest.mark.parametrize(
    ("name", "edge", "said"),
    [
        ("disc-cnn-4", 8, "exactly 32x32"),
        ("gen-resnet", 12, "of 8"),
        ("gen-dcgan", 12, "of 8"),
        ("critic-resnet", 6, "of 4"),
    ],
)
def test_sizes_that_a_network_is_not_for_are_known_without_torch(name: str, edge: int, said: str) -> None:
    entry = catalogue.find(name)
    entry.check_input([3, 32, 32], "float32")
    with pytest.raises(ValueError, match=f"{said}.*: take .*fedgo-small"):
        entry.check_input([3, edge, edge], "float32")
    with pytest.raises(ValueError, match=name):
        registry.build(name, {}, task=task_for(name, edge=edge))
