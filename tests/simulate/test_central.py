"""Central training: one model on everybody's data, with as many steps as the devices take together."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk import named
from contract.wire.federations import FederationCreate
from potstill.samples import Samples
from potstill.simulate import central
from potstill.simulate import experiment as experiments
from potstill.simulate.config import SimulatedClient, SimulationConfig, SimulationError, resolve
from potstill.simulate.engine import Simulation

from .small import body, config, samples, simulate
from .test_command import loaded, make, rows, small

POOLED = {"name": "central", "recipe": {"name": "central"}, "pooled": True}


def pooled(count: int) -> central.Pooled:
    inputs, labels = samples(0, 7)
    return central.Pooled(7, torch.from_numpy(inputs), torch.from_numpy(labels), count=count)


def test_an_epoch_is_so_many_batches_and_each_pass_has_every_sample() -> None:
    """Seven samples in threes are cut into 3 and 4, since one alone joins the batch before: five batches end in a third
    pass.
    """
    held = pooled(5)
    order = torch.Generator().manual_seed(3)
    found = [inputs[:, 0].tolist() for inputs in named.alone(held.batches(3, order, torch.device("cpu")), "a test")]
    assert [len(batch) for batch in found] == [3, 4, 3, 4, 3] and held.steps(3) == 5
    everything = sorted(held.inputs[:, 0].tolist())  # type: ignore[index]
    passes = [found[0] + found[1], found[2] + found[3]]
    assert all(sorted(each) == everything for each in passes) and passes[0] != passes[1]


def test_steps_by_hand() -> None:
    """Of 10 and 25 samples in batches of 8 a pass has 2 and 3 (one left over joins): 15 steps for three epochs each."""
    clients = {name: Samples(*samples(0, size)) for name, size in (("a", 10), ("b", 25))}
    sizes = {name: len(each) for name, each in clients.items()}

    def counted(**more: Any) -> int:
        asked: FederationCreate = body(local={"epochs": 3, "batch_size": 8}, rounds={"total": 40} | more)
        given = [SimulatedClient(name, (each.inputs, each.labels)) for name, each in clients.items()]
        return central.steps(SimulationConfig(asked, given, {"test": samples(1, 9)}, Path()), sizes)

    assert counted() == 15
    assert 6 < counted(clients_per_round=1, min_updates=1) < 9, "one of the two a round: 7.5 in the mean of many"


def test_the_command_compares_with_central_training(mine: Path, tmp_path: Path) -> None:
    """The same first model, everybody's samples, and as many steps in all; twice the same figures."""
    outs = [tmp_path / name for name in ("one", "two")]
    for out in outs:
        done = small(mine, out, "--central")
        assert done.exit_code == 0, done.output
    found = rows(outs[0])
    assert {line["recipe"] for line in found} == {"fedavg", "central"}
    assert len({line["accuracy"] for line in found if line["round"] == "0" and line["seed"] == "1"}) == 1
    for seed in (0, 1):
        taken: dict[str, list[int]] = {}
        for name in ("fedavg", "central"):
            home = outs[0] / f"seed-{seed}" / name / "rounds"
            notes = [json.loads((home / f"0000{index}" / "result.json").read_text())["note"] for index in (1, 2)]
            taken[name] = [sum(part["steps"] for part in note["participants"]) for note in notes]
        assert taken["central"] == [round(fmean(taken["fedavg"]))] * 2
        (part,) = notes[0]["participants"]
        held = json.loads((outs[0] / f"seed-{seed}" / "clients.json").read_text())
        assert part["client"] == "central" and part["num_samples"] == sum(each["samples"] for each in held.values())
    one, two = ([line["accuracy"] for line in rows(out)] for out in outs)
    assert one == two
    assert (
        "| central | 2 |" in (outs[0] / "table.md").read_text() and "central" not in (outs[0] / "costs.md").read_text()
    )
    again = simulate("--out", outs[0], "--resume", "--central")
    assert again.exit_code == 0, again.output
    assert [line["accuracy"] for line in rows(outs[0])] == one, "one central training, however often it is asked for"


def test_another_number_of_steps_is_another_simulation(tmp_path: Path) -> None:
    def given(count: int) -> SimulationConfig:
        alone = {"total": 1, "min_updates": 1}
        return config(tmp_path, body_=body(rounds=alone), clients=[SimulatedClient("central", pooled(count))])

    Simulation(given(3)).run()
    with pytest.raises(SimulationError, match="other data or settings"):
        Simulation(given(4))


def test_a_prototypes_own_plan_is_central_trainings() -> None:
    """Its batches and rate, but not its epochs: those became steps."""
    own = {"epochs": 4, "batch_size": 5}
    prototypes = [{"name": "small", "architecture": "mlp", "local": own}, {"name": "large", "architecture": "mlp"}]
    experiment = make(recipes=[POOLED], prototypes=prototypes, local={"epochs": 2, "batch_size": 16})
    data = loaded()
    experiments.check(experiment, data)
    dealt = experiments.deal(experiment, data, 0)
    made = experiments._config(experiment, experiment.recipes[0], dealt, {"test": samples(1, 9)}, Path(), 0)
    plan = resolve(made).plan_of("small")
    assert [each.name for each in made.federation.prototypes] == ["small"]
    assert (plan.epochs, plan.batch_size) == (1, 5)
    sizes = [len(each) for each in dealt.clients.values()]
    expected = [(4, 5), (2, 16), (4, 5), (2, 16)]
    steps = sum(epochs * (-(-n // b) - (n % b == 1)) for n, (epochs, b) in zip(sizes, expected, strict=True))
    assert made.clients[0].dataset.count == steps, "a last batch of one joins the one before"
    assert np.array_equal(np.sort(made.clients[0].dataset.labels.numpy()), np.sort(_labels(dealt)))


def _labels(dealt: experiments.Dealt) -> np.ndarray:
    return np.concatenate([each.labels for each in dealt.clients.values()])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "feddf", "recipe": None}, "nothing to fuse or to distil"),
        ({"recipe": {"name": "mine", "fuse": {"kind": "median"}}}, "nothing to fuse or to distil"),
        ({"local": {"privacy": {"noise_multiplier": 1.0, "max_grad_norm": 1.0}}}, "local.privacy draw samples"),
    ],
)
def test_what_one_model_does_not_have_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(SimulationError, match=f"pooled: .*{message}"):
        experiments.check(make(recipes=[POOLED | entry]), loaded())


def test_nobody_lies_in_central_training() -> None:
    experiment, data = make(recipes=[POOLED, {"name": "fedavg"}], liars=2, lie="label-shift"), loaded()
    experiments.check(experiment, data)
    dealt = experiments.deal(experiment, data, 0)
    made = experiments._config(experiment, experiment.recipes[0], dealt, {"test": samples(1, 9)}, Path(), 0)
    (alone,) = made.clients
    assert alone.lie is None and np.array_equal(alone.dataset.labels.numpy(), _labels(dealt))
