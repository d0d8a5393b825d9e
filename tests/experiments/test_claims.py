"""The quickest experiments with a seed or two, against loosened bars, and what holds exactly."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
import torch

from experiments.evidence import (
    bits,
    blobs,
    fedbe,
    fedet,
    fedma,
    fedsdd,
    gaussians,
    quadratics,
    reflux,
    secure,
    simulated,
    t1,
)
from experiments.evidence.run import EXPERIMENTS
from experiments.evidence.verdicts import Setting


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_fedgo_labels_four_gaussians_better_than_the_rest(tmp_path: Path) -> None:
    points, runs = gaussians.grid(), t1.Runs()
    made = gaussians.world(tmp_path, 0, gaussians.SHARED, points, gaussians.quadrant_rule(points))
    t1.measure(made, ["uniform", "entropy", "fedgo-sigmoid", "true"], runs)
    labels = {name: values[0] for name, values in runs.items()}
    assert labels["fedgo-sigmoid labels"] > 0.9
    assert labels["fedgo-sigmoid labels"] > labels["uniform labels"] + 0.05
    assert labels["fedgo-sigmoid labels"] > labels["entropy labels"] + 0.05
    assert labels["true labels"] > labels["fedgo-sigmoid labels"]
    assert labels["fedgo-sigmoid server"] > labels["average"] + 0.05


def test_clients_of_the_gaussians_hold_what_they_should() -> None:
    data = gaussians.client_data(10, np.random.default_rng(0))
    assert [len(inputs) for inputs, _ in data] == [300] * 4
    for me, (inputs, _) in enumerate(data):
        nearest = ((inputs[:, None] - gaussians.CENTRES) ** 2).sum(-1).argmin(1)
        counts = np.bincount(nearest, minlength=4)
        assert abs(counts[me] - 270) <= 10
        assert all(abs(counts[other] - 10) <= 10 for other in range(4) if other != me)
    everybody = np.concatenate([inputs for inputs, _ in data])
    assert len(np.unique(everybody, axis=0)) == 1200  # nobody's point is another's too


def test_feddf_beats_the_average_and_leaves_an_absent_prototype_alone(tmp_path: Path) -> None:
    setting = Setting([0, 1], tmp_path, tmp_path / "img", lambda _: None)
    section = blobs.run(setting)
    by_name = {verdict.what: verdict for verdict in section.verdicts}
    assert by_name["FedDF minus the average"].held
    assert by_name["FedDF minus its ensemble"].held
    assert by_name["Alg. 3, a prototype without clients"].ours == "2 of 2"
    assert by_name["Alg. 3, teacher forwards for two students"].ours == "120"
    assert (tmp_path / "img" / "evidence-feddf.png").stat().st_size > 10_000


def test_a_student_learns_nothing_of_itself(tmp_path: Path) -> None:
    roll = fedbe.Roll(tmp_path, 0)
    spec = roll.round(2, fedbe.METHODS["S+A+C Dirichlet"])
    assert fedbe.largest_gradient(roll, spec) < 1e-6


@pytest.mark.parametrize("clients", [5, 8])
def test_fedsdd_costs_the_same_for_any_number_of_clients(tmp_path: Path, clients: int) -> None:
    found = fedsdd.Found()
    fedsdd.measure(tmp_path, 0, clients, found)
    k, u = fedsdd.GROUPS, fedsdd.SERVER
    assert found.forwards["R = 1", clients] == [k * u] * 3
    assert found.forwards["R = 2", clients] == [k * u, 2 * k * u, 2 * k * u]
    assert found.forwards["feddf", clients] == [clients * u] * 3
    assert found.only_main == [True]
    assert found.same == [True]  # groups that ran ahead of the distillation, bit for bit
    (in_order, overlapped), *_ = found.spans
    assert overlapped < in_order


def test_scaffold_reaches_the_minimum_and_fedavg_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quadratics, "ROUNDS", 15)
    scaffold = quadratics.descend(tmp_path / "scaffold", 0, "scaffold", quadratics.CLIENTS)
    fedavg = quadratics.descend(tmp_path / "fedavg", 0, "fedavg", quadratics.CLIENTS)
    assert scaffold.distances[-1] < 0.02 < 0.05 < fedavg.distances[-1]
    assert scaffold.gap < 1e-5
    assert mean(scaffold.distances[-3:]) < scaffold.distances[1]


def test_matching_mends_networks_that_started_apart(tmp_path: Path) -> None:
    mlp, apart = fedma.NETS[0], fedma.ARMS[fedma.APART]
    matched = fedma.federate(tmp_path / "matched", 0, mlp, replace(fedma.ARMS["FedMA"], rounds=1))
    averaged = fedma.federate(tmp_path / "averaged", 0, mlp, apart)
    assert matched[0] > averaged[0] + 0.3


def test_bits_of_weights_without_feedback_are_not_behind(tmp_path: Path) -> None:
    recipe = bits.RECIPES["FedDF"]
    alone = bits.federate(tmp_path / "alone", 0, recipe, bits.weights, rounds=2)
    feedback = bits.federate(tmp_path / "feedback", 0, recipe, bits.weights_with_feedback, rounds=2)
    assert alone[0] == feedback[0], "the first round has nothing to carry"
    assert alone[1] >= feedback[1] > 0.5


def test_a_saving_is_none_where_the_target_is_not_reached() -> None:
    fedavg = fedet.Sent([0.9], [400])
    assert fedet.share(fedet.Sent([0.9], [100]), fedavg) == 0.25
    assert fedet.share(fedet.Sent([0.5], [100]), fedavg) == 1.0
    bar, *_ = fedet.judge([fedet.Sent([0.9], [100]), fedet.Sent([0.5], [100])], [fedavg, fedavg], [])
    assert (bar.ours, bar.held) == ("62.5 % ± 53.0", False)


def test_a_quadratic_is_its_own_cross_entropy() -> None:
    network = quadratics.Quadratic()
    a, m = torch.rand(quadratics.SIZE) + 0.2, torch.randn(quadratics.SIZE)
    loss = torch.nn.functional.cross_entropy(network(torch.cat([a, m])[None]), torch.zeros(1, dtype=torch.int64))
    (gradient,) = torch.autograd.grad(loss, [network.w])
    assert torch.allclose(loss, (a * m**2).sum() / 2 + 1, rtol=1e-5)
    assert torch.allclose(gradient, -a * m, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("key", [key for key, each in EXPERIMENTS.items() if each.where])
def test_every_experiment_can_be_imported(key: str) -> None:
    import importlib

    module, _, function = str(EXPERIMENTS[key].where).partition(":")
    assert callable(getattr(importlib.import_module(f"experiments.evidence.{module}"), function))


def test_masked_rounds_publish_what_plain_sums_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure, "ROUNDS", 1)
    monkeypatch.setattr(secure, "LOCAL", secure.LOCAL.model_copy(update={"epochs": 1}))
    found = secure.federate(tmp_path, 0)
    assert found.same == [True]
    assert found.furthest[0] <= secure.PLAN.fixed.step / 2 + 2.0**-24
    assert found.masked == pytest.approx(found.plain, abs=0.01)
    assert found.masked_bytes > 1.9 * found.plain_bytes


def test_photographs_are_cut_into_squares_of_the_digits_size() -> None:
    patches = simulated.photographs()
    assert patches.shape[1:] == (1, 8, 8) and patches.dtype.name == "float32"
    assert 0 <= patches.min() < 0.1 and 0.9 < patches.max() <= 1
    assert len(patches) >= 719


def test_verdicts_on_reflux_tell_what_holds() -> None:
    """85 % at the end are no 91, and a lead of nothing is none of two points."""
    found = {label: [[0.8, 0.9], [0.8, 0.9]] for label in reflux.ARMS} | {reflux.ODDS: [[0.7, 0.8], [0.7, 0.8]]}
    curves = {0.1: found, 0.05: {label: found[label] for label in reflux.FEWER}}
    verdicts = {verdict.what: verdict for verdict in reflux.judge(curves)}
    assert verdicts["Reflux minus FedGO plain odds"].held and verdicts["the same at alpha 0.05"].held
    assert verdicts["Reflux, last three rounds"].held is False
    assert verdicts["Reflux minus without discriminators"].held is False
    near = {label: [[0.81, 0.81], [0.83, 0.83]] for label in reflux.ARMS}
    assert not any(verdict.held for verdict in reflux.judge({0.1: near, 0.05: near}))


def test_weights_by_class_are_means_over_its_images() -> None:
    weights, labels = np.array([[0.2, 0.4, 1.0], [0.8, 0.6, 0.0]]), np.array([0, 0, 9])
    labels = np.concatenate([labels, np.arange(1, 9)])
    found = reflux.by_class(np.concatenate([weights, np.zeros((2, 8))], axis=1), labels)
    assert found[:, 0].tolist() == pytest.approx([0.3, 0.7]) and found[:, 9].tolist() == [1.0, 0.0]


def test_verdicts_on_liars_and_domains_tell_what_holds() -> None:
    """Bars are missed by figures that say otherwise: FedGO no worse on photographs, plain odds that bear liars."""
    means = {where: {"FedAvg": [0.4], "FedDF": [0.5], "FedGO plain odds": [0.7]} for where in simulated.DOMAINS}
    missed = [verdict.what for verdict in simulated.judge_domains(means) if verdict.held is False]
    assert missed == ["FedGO plain odds: own minus rotated", "FedGO plain odds: own minus photographs"]
    lying = {
        count: {"FedDF": [0.5], "FedGO plain odds": [0.7], "FedGO double sigmoid": [0.6]} for count in simulated.LIARS
    }
    missed = [verdict.what for verdict in simulated.judge_liars(lying) if verdict.held is False]
    assert missed == ["plain odds: none minus two liars", "five liars: double sigmoid minus plain odds"]
