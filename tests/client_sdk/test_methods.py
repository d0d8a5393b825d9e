"""Every objective's whole wiring, against gradients by finite differences of losses written out in numpy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from client_sdk import data
from client_sdk.errors import ModelMismatch, TrainingError, UnexpectedAnswer
from client_sdk.methods import base
from client_sdk.training import LocalResult, train_local
from contract import local
from contract.choices import choices_of
from contract.layout import layout
from contract.local import LocalPlan, Sgd
from contract.nn import codec
from contract.tensors import DTYPES, Header
from contract.updates import FEATURES_KEY
from contract.wire.federations import Task

CPU = torch.device("cpu")
TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [2], "dtype": "float32"}})
LR = 0.2
RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(6, 2)).astype("float32"), np.array([0, 1, 1, 0, 1, 0])
START, OTHER = RNG.normal(size=12), RNG.normal(size=12)
C, C_OWN = RNG.normal(size=12), RNG.normal(size=12)
PROTOTYPES = RNG.normal(size=(2, 3))
Array = np.ndarray


class Net(nn.Module):
    """tanh(W1 x) are 3 features, W2 of them 2 logits; 12 weights in all."""

    def __init__(self, weights: Array = START):
        super().__init__()
        self.body, self.head = nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False)
        for name, value in state(weights).items():
            self.get_parameter(name).data = value

    def features(self, x: Tensor) -> Tensor:
        return torch.tanh(self.body(x))

    def forward(self, x: Tensor) -> Tensor:
        logits: torch.Tensor = self.head(self.features(x))
        return logits


def state(weights: Array) -> dict[str, Tensor]:
    w1, w2 = (
        torch.tensor(part, dtype=torch.float32) for part in (weights[:6].reshape(3, 2), weights[6:].reshape(2, 3))
    )
    return {"body.weight": w1, "head.weight": w2}


def flat(tensors: dict[str, Tensor], prefix: str = "") -> Array:
    names = [f"{prefix}body.weight", f"{prefix}head.weight"]
    return np.concatenate([tensors[name].detach().numpy().ravel() for name in names]).astype("float64")


def features_and_logits(weights: Array) -> tuple[Array, Array]:
    features = np.tanh(X.astype("float64") @ weights[:6].reshape(3, 2).T)
    return features, features @ weights[6:].reshape(2, 3).T


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def cross_entropy(weights: Array) -> float:
    return float(-np.log(softmax(features_and_logits(weights)[1])[np.arange(6), Y]).mean())


def cosine(one: Array, two: Array) -> Array:
    return np.asarray((one * two).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1))


def prox(w: Array) -> float:
    return float(0.7 / 2 * ((w - START) ** 2).sum())


def scaffold(w: Array) -> float:
    return float((C - C_OWN) @ w)


def fedgkd(w: Array) -> float:
    teacher, student = (softmax(features_and_logits(weights)[1] / 3.0) for weights in (OTHER, w))
    return float(0.5 / 2 * 9 * (teacher * np.log(teacher / student)).sum(1).mean())


def moon(w: Array) -> float:
    z, near, far = (features_and_logits(weights)[0] for weights in (w, START, OTHER))
    pulls, pushes = np.exp(cosine(z, near) / 0.5), np.exp(cosine(z, far) / 0.5)
    return float(5.0 * -np.log(pulls / (pulls + pushes)).mean())


def feduv(w: Array) -> float:
    features, logits = features_and_logits(w)
    std = np.maximum(np.sqrt(0.5) - softmax(logits).std(axis=0, ddof=1), 0).mean()
    pairs = [((features[i] - features[j]) ** 2).sum() for i in range(6) for j in range(i + 1, 6)]
    return float(2.5 * std + 0.5 * np.exp(-np.array(pairs) / BANDWIDTH[-1]).mean())


BANDWIDTH = [1.0]


def set_bandwidth(w: Array) -> None:
    """The median of squared distances gets no gradient: it is fixed within a step. The lower one of an even number."""
    features = features_and_logits(w)[0]
    pairs = sorted(((features[i] - features[j]) ** 2).sum() for i in range(6) for j in range(i + 1, 6))
    BANDWIDTH.append(pairs[(len(pairs) - 1) // 2])


def fedtgp(w: Array) -> float:
    return float(2.0 * ((features_and_logits(w)[0] - PROTOTYPES[Y]) ** 2).mean())


def gradient(loss: Callable[[Array], float], w: Array) -> Array:
    steps = np.eye(len(w)) * 1e-5
    return np.array([(loss(w + step) - loss(w - step)) / 2e-5 for step in steps])


def samples(x: Array = X, y: Array = Y) -> data.Samples:
    taken = data.load((x, y))
    taken.check(TASK)
    return taken


def base_of(module: nn.Module, features: int = 3) -> Header:
    header = codec.manifest(module)
    return Header(header.tensors, header.metadata | {FEATURES_KEY: str(features)})


def train(objective: Any, module: nn.Module | None = None, *, steps: int = 3, **options: Any) -> LocalResult:
    """Train with full batches."""
    module = module or Net()
    plan = LocalPlan(objective=objective, optimizer=Sgd(lr=LR), epochs=steps, batch_size=6)
    options.setdefault("base", base_of(module))
    return train_local(module, options.pop("data", samples()), plan, seed=0, device=CPU, **options)


@pytest.fixture
def extras(tmp_path: Path) -> dict[str, Path]:
    """Files as they come with an assignment."""
    files = {"control": state(C), "teacher": Net(OTHER), "prototypes": {"prototypes": torch.tensor(PROTOTYPES).float()}}
    for name, content in files.items():
        codec.save_state(content, tmp_path / f"{name}.safetensors")  # type: ignore[arg-type]
    return {name: tmp_path / f"{name}.safetensors" for name in files}


MEMORY = {f"control.{name}": value for name, value in state(C_OWN).items()} | {
    f"previous.{name}": value for name, value in state(OTHER).items()
}
CASES: list[tuple[Any, Callable[[Array], float]]] = [
    (local.SgdObjective(), lambda w: 0.0),
    (local.FedProxObjective(mu=0.7), prox),
    (local.ScaffoldObjective(option=2), scaffold),
    (local.ScaffoldObjective(option=1), scaffold),
    (local.FedGkdObjective(gamma=0.5), fedgkd),
    (local.MoonObjective(mu=5.0), moon),
    (local.FedUvObjective(), feduv),
    (local.FedTgpObjective(weight=2.0), fedtgp),
]


def test_every_objective_of_the_contract_has_a_method_and_a_case_here() -> None:
    found = set(choices_of(local.ClientObjective))
    # see test_predictions.py, test_frozen_layers.py, test_dafkd.py and, below, one with labels that are skewed
    elsewhere = {local.DsFlObjective, local.FedMaObjective, local.DafkdObjective, local.PriorAdjustedObjective}
    assert not found - base.implements.known(), "no class of client_sdk.methods does these: add one under @implements"
    assert not found - {type(objective) for objective, _ in CASES} - elsewhere, "these have no row in CASES"


@pytest.mark.parametrize(("objective", "extra"), CASES, ids=lambda value: getattr(value, "kind", ""))
def test_three_steps_follow_the_gradient_of_the_loss_written_by_hand(
    objective: Any, extra: Callable[[Array], float], extras: dict[str, Path]
) -> None:
    w = START.copy()
    for _ in range(3):
        set_bandwidth(w)
        w = w - LR * gradient(lambda v: cross_entropy(v) + extra(v), w)
    result = train(objective, extras=extras, memory=MEMORY)
    assert flat(result.tensors) == pytest.approx(w, abs=2e-5)
    assert np.abs(w - START).max() > 0.1
    if objective.kind != "sgd":  # the term makes a difference that the tolerance would not hide
        assert np.abs(flat(train(local.SgdObjective()).tensors) - w).max() > 1e-3


# SCAFFOLD


def control(result: LocalResult) -> tuple[Array, Array]:
    """Return dc as sent and c_i+ as kept."""
    return flat(result.tensors, "control."), flat(result.memory, "control.")


@pytest.mark.parametrize("option", [1, 2])
def test_after_one_step_both_options_are_the_gradient_at_the_model_as_sent(
    option: Any, extras: dict[str, Path]
) -> None:
    """K = 1: c_i - c + (x - y) / lr with y = x - lr (g - c_i + c) is g."""
    objective = local.ScaffoldObjective(option=option)
    sent, kept = control(train(objective, steps=1, extras=extras, memory=MEMORY))
    g = gradient(cross_entropy, START)
    assert kept == pytest.approx(g, abs=1e-5) and sent == pytest.approx(g - C_OWN, abs=1e-5)


def test_option_2_is_the_mean_gradient_along_the_way(extras: dict[str, Path]) -> None:
    w, seen = START.copy(), []
    for _ in range(4):
        seen.append(gradient(cross_entropy, w))
        w = w - LR * (seen[-1] - C_OWN + C)
    _, kept = control(train(local.ScaffoldObjective(), steps=4, extras=extras, memory=MEMORY))
    assert kept == pytest.approx(np.mean(seen, axis=0), abs=1e-5)


def test_option_1_reads_all_data_and_leaves_running_statistics_as_they_are() -> None:
    class Normed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x: Tensor) -> Tensor:
            logits: torch.Tensor = self.head(self.features(self.norm(x)))
            return logits

    plan = LocalPlan(objective=local.ScaffoldObjective(option=1), optimizer=Sgd(lr=LR), batch_size=3)
    plain = plan.model_copy(update={"objective": local.SgdObjective()})
    one, two = (train_local(Normed(), samples(), p, seed=0, device=CPU) for p in (plan, plain))
    for name in ("norm.running_mean", "norm.num_batches_tracked", "body.weight"):
        assert torch.equal(one.tensors[name], two.tensors[name])
    assert "control.norm.running_mean" not in one.tensors and "control.norm.weight" in one.tensors


def test_a_lost_control_variate_starts_at_zeros_and_says_so(extras: dict[str, Path]) -> None:
    objective = local.ScaffoldObjective()
    lost = train(objective, steps=1, extras=extras, memory={}, first=False)
    assert lost.control_reset
    sent, kept = control(lost)
    assert sent == pytest.approx(kept)
    assert not train(objective, extras=extras, memory={}, first=True).control_reset
    assert not train(objective, extras=extras, memory=MEMORY, first=False).control_reset
    unfit = MEMORY | {"control.body.weight": torch.zeros(3, 3)}
    assert train(objective, extras=extras, memory=unfit, first=False).control_reset


def test_a_server_control_of_another_network_is_refused(tmp_path: Path) -> None:
    codec.save_state({"body.weight": torch.zeros(3, 2)}, tmp_path / "c.safetensors")
    with pytest.raises(UnexpectedAnswer, match=r"extras\.control"):
        train(local.ScaffoldObjective(), extras={"control": tmp_path / "c.safetensors"})


def test_frozen_and_tied_parameters_have_control_variates_too() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.still = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
            self.two.weight = self.one.weight
            self.still.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            logits: torch.Tensor = self.two(torch.tanh(self.one(self.still(x))))
            return logits

    result = train(local.ScaffoldObjective(), Tied())
    assert torch.equal(result.tensors["control.one.weight"], result.tensors["control.two.weight"])
    assert result.tensors["control.one.weight"].abs().max() > 0
    assert not result.tensors["control.still.weight"].any()


# FedGKD, MOON


def test_fedgkd_without_a_teacher_is_plain_training() -> None:
    plain = train(local.SgdObjective())
    assert torch.equal(train(local.FedGkdObjective(gamma=9.0)).tensors["body.weight"], plain.tensors["body.weight"])


def test_moons_first_round_has_a_constant_contrast_and_keeps_the_trained_model() -> None:
    """Previous = global: the contrast is mu ln 2 whatever the features are, and its gradient is 0."""
    plain, first = train(local.SgdObjective()), train(local.MoonObjective(mu=5.0))
    assert flat(first.tensors) == pytest.approx(flat(plain.tensors), abs=1e-6)
    assert first.loss - plain.loss == pytest.approx(5.0 * np.log(2), abs=1e-5)
    assert flat(first.memory, "previous.") == pytest.approx(flat(first.tensors), abs=0)


def test_a_previous_model_of_another_network_counts_as_none() -> None:
    first = train(local.MoonObjective())
    other = train(local.MoonObjective(), memory={"previous.body.weight": torch.zeros(9, 9)})
    assert torch.equal(other.tensors["body.weight"], first.tensors["body.weight"])


# FedTGP


def test_class_means_are_of_the_trained_model_in_float64_with_zeros_for_absent_classes() -> None:
    result = train(local.FedTgpObjective(), data=samples(X, np.zeros(6, int)))
    features = features_and_logits(flat(result.tensors))[0]
    assert result.tensors["class_counts"].tolist() == [6, 0]
    assert result.tensors["class_means"].numpy()[0] == pytest.approx(features.mean(0), abs=1e-6)
    assert not result.tensors["class_means"][1].any()


def test_without_prototypes_fedtgp_trains_plainly(extras: dict[str, Path], tmp_path: Path) -> None:
    plain = train(local.SgdObjective())
    assert torch.equal(train(local.FedTgpObjective(weight=9.0)).tensors["body.weight"], plain.tensors["body.weight"])
    codec.save_state({"prototypes": torch.zeros(2, 5)}, tmp_path / "p.safetensors")
    with pytest.raises(UnexpectedAnswer, match=r"extras\.prototypes.*\[2, 5\].*\[2, 3\]"):
        train(local.FedTgpObjective(), extras={"prototypes": tmp_path / "p.safetensors"})


# Reflux


def test_the_prior_is_of_the_devices_own_labels_and_is_not_sent() -> None:
    """One sample of class 1 and five of class 0: pi = (5.1, 1.1) / 6.2, lambda 0.5 and eps 0.1."""
    labels = np.array([0, 0, 0, 1, 0, 0])
    offset = 0.5 * np.log(np.array([5.1, 1.1]) / 6.2)

    def adjusted(w: Array) -> float:
        probabilities = softmax(features_and_logits(w)[1] + offset)
        return float(-np.log(probabilities[np.arange(6), labels]).mean())

    w = START.copy()
    for _ in range(3):
        w = w - LR * gradient(adjusted, w)
    skewed = samples(X, labels)
    result = train(local.PriorAdjustedObjective(), data=skewed)
    assert flat(result.tensors) == pytest.approx(w, abs=2e-5)
    plain = train(local.SgdObjective(), data=skewed)
    assert np.abs(flat(plain.tensors) - w).max() > 1e-3
    assert list(result.tensors) == list(plain.tensors) and not result.memory


def test_with_lambda_0_it_is_plain_training_bit_for_bit() -> None:
    skewed = samples(X, np.array([0, 0, 0, 1, 0, 0]))
    one, two = (train(each, data=skewed) for each in (local.PriorAdjustedObjective(weight=0), local.SgdObjective()))
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in two.tensors)


def test_classes_of_a_source_are_counted_by_reading_it() -> None:
    class Source(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            return X[index], int(index == 3)

    held = samples(X, np.array([0, 0, 0, 1, 0, 0]))
    read = data.load(Source())
    read.check(TASK)
    read.labels = None  # as of a source too large to have been read whole
    one, two = (train(local.PriorAdjustedObjective(), data=each) for each in (held, read))
    assert flat(one.tensors) == pytest.approx(flat(two.tensors), abs=1e-6)


# Features


class Other(Net):
    """Forward is more than the head of the features."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Maps(Net):
    """Features that are no vectors."""

    def features(self, x: Tensor) -> Tensor:
        return super().features(x).unsqueeze(2)


@pytest.mark.parametrize(
    "objective", [local.MoonObjective(), local.FedUvObjective(), local.FedTgpObjective()], ids=lambda o: o.kind
)
@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(2, 2)), "no features and no head.*Give it a method features"),
        (Other(), r"forward\(x\) is not head\(features\(x\)\)"),
        (Maps(), r"features\(x\) returned shape \[1, 3, 1\]"),
    ],
)
def test_a_module_without_proper_features_is_refused_before_training(
    objective: Any, module: nn.Module, words: str
) -> None:
    before = [parameter.clone() for parameter in module.parameters()]
    with pytest.raises(ModelMismatch, match=words):
        train(objective, module)
    assert all(torch.equal(one, two) for one, two in zip(before, module.parameters(), strict=True))


def test_a_model_that_does_not_say_how_many_features_it_has_cannot_send_them() -> None:
    with pytest.raises(ModelMismatch, match="take an architecture that has named features"):
        train(local.FedTgpObjective(), base=codec.manifest(Net()))
    with pytest.raises(ModelMismatch, match="gives 3 values, and the federation's model has 4"):
        train(local.FedTgpObjective(), base=base_of(Net(), 4))


def test_logits_that_are_not_finite_upload_nothing() -> None:
    with pytest.raises(TrainingError, match="NaN or infinity; nothing was uploaded"):
        train(local.FedUvObjective(), Net(np.full(12, 3e38)))


# The update


@pytest.mark.parametrize("precision", [None, local.BinaryPrecision()], ids=["full", "binary"])
@pytest.mark.parametrize("objective", [case[0] for case in CASES], ids=lambda o: o.kind)
def test_an_update_holds_exactly_the_layout_of_its_plan_in_order(objective: Any, precision: Any) -> None:
    class Deep(Net):
        def __init__(self) -> None:
            super().__init__()
            self.middle, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

        def features(self, x: Tensor) -> Tensor:
            features: torch.Tensor = self.norm(self.middle(super().features(x)))
            return features

    plan = LocalPlan(objective=objective, optimizer=Sgd(lr=LR), precision=precision)
    result = train_local(Deep(), samples(), plan, seed=0, device=CPU, base=base_of(Deep()))
    arrays = codec.state_arrays(result.tensors)
    expected = layout(plan, base_of(Deep()), 2)
    assert list(arrays) == list(expected)
    assert {n: (a.dtype, a.shape) for n, a in arrays.items()} == {n: (DTYPES[d], s) for n, (d, s) in expected.items()}
