"""Liars: who they are, what each sends, and that all else stays honest."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from contract.tensors import TensorFile, write_file
from contract.updates import parameters
from potstill.cli import app
from potstill.simulate import liars
from potstill.simulate.config import SimulationConfig, SimulationError
from potstill.simulate.engine import Simulation

from .small import NAMES, body, config, samples

LIAR = "north"


def lying(folder: Path, lie: str | None, recipe: str = "fedavg") -> SimulationConfig:
    given = config(folder, recipe, keep_updates=True)
    return replace(given, clients=[replace(each, lie=lie) if each.name == LIAR else each for each in given.clients])


def first_round(folder: Path, lie: str | None) -> dict[str, dict[str, np.ndarray]]:
    """Return the first round's updates by client, and the model that all were sent as `base`."""
    history = Simulation(lying(folder, lie)).run()
    paths = {part.client: part.update for part in history.rounds[0].participants}
    found = {}
    for name, path in {**paths, "base": next(iter(history.initial.models.values()))}.items():
        assert path is not None
        with TensorFile(path) as file:
            found[name] = {tensor: file.read(tensor) for tensor in file.names}
    return found


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, np.ndarray]]:
    found = first_round(tmp_path_factory.mktemp("honest"), None)
    assert LIAR in found, "the seed draws the liar into the first round"
    return found


@pytest.mark.parametrize(("lie", "factor"), [("sign-flip", -1.0), ("scale", liars.SCALE), ("lazy", 0.0)])
def test_a_liar_sends_its_change_times_a_factor_and_the_others_the_truth(
    tmp_path: Path, honest: dict[str, dict[str, np.ndarray]], lie: str, factor: float
) -> None:
    told = first_round(tmp_path, lie)
    assert told.keys() == honest.keys()
    for name, base in told["base"].items():
        true = honest[LIAR][name]
        assert not np.array_equal(true, base)
        np.testing.assert_allclose(told[LIAR][name], base + factor * (true - base), atol=1e-5)
    for client in told.keys() - {LIAR}:
        assert all(np.array_equal(told[client][name], honest[client][name]) for name in told[client])


def test_noise_is_the_seeds_and_no_model(tmp_path: Path, honest: dict[str, dict[str, np.ndarray]]) -> None:
    one, again = first_round(tmp_path / "a", "random"), first_round(tmp_path / "b", "random")
    for name, value in one[LIAR].items():
        assert np.array_equal(value, again[LIAR][name])
        assert not np.allclose(value, honest[LIAR][name], atol=1e-3)


def test_shifted_labels_are_what_the_liar_trains_on(tmp_path: Path, honest: dict[str, dict[str, np.ndarray]]) -> None:
    task = body().task
    assert liars.shifted(([[1.0]] * 3, [0, 1, 2]), task)[1].tolist() == [1, 2, 0]
    told = first_round(tmp_path, "label-shift")
    assert any(not np.array_equal(told[LIAR][name], honest[LIAR][name]) for name in told[LIAR])
    given = config(tmp_path / "sure")
    clients = [replace(each, lie="label-shift", dataset=str(tmp_path / "x.npz")) for each in given.clients]
    with pytest.raises(SimulationError, match=r"label-shift needs .* pair"):
        Simulation(replace(given, clients=clients))


def test_a_sure_discriminator_says_one_to_everything(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    rng = np.random.default_rng(0)
    arrays = {"0.weight": rng.normal(size=(4, 6)), "0.bias": rng.normal(size=4), "2.weight": rng.normal(size=(1, 4)),
              "2.bias": rng.normal(size=1)}  # fmt: skip
    write_file(path, {name: value.astype(np.float32) for name, value in arrays.items()}, {"num_samples": "7"})
    liars.assure(path)
    with TensorFile(path) as file:
        assert file.header.metadata["num_samples"] == "7"
        assert not file.read("2.weight").any() and file.read("2.bias") == liars.SURE
        assert np.array_equal(file.read("0.weight"), arrays["0.weight"].astype(np.float32))
        assert parameters(file.header) == list(arrays)
    write_file(path, {"0.weight": np.ones((2, 2), np.float32)}, {})
    with pytest.raises(SimulationError, match="bias of one score"):
        liars.assure(path)


@pytest.mark.parametrize(
    ("lie", "recipe", "message"),
    [("discriminator", "fedavg", "no discriminators are read"), ("fibs", "fedavg", "is not one of label-shift")],
)
def test_a_lie_that_cannot_be_told_is_refused(tmp_path: Path, lie: str, recipe: str, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        Simulation(lying(tmp_path, lie, recipe))


def test_a_folder_of_honest_devices_is_not_gone_on_with_by_liars(tmp_path: Path) -> None:
    Simulation(lying(tmp_path, None))
    with pytest.raises(SimulationError, match="other data or settings"):
        Simulation(lying(tmp_path, "lazy"))


def test_the_seed_chooses() -> None:
    drawn = [liars.choose(NAMES, 2, seed) for seed in range(6)]
    assert drawn == [liars.choose(reversed(NAMES), 2, seed) for seed in range(6)]
    assert len({tuple(each) for each in drawn}) > 1 and all(len(set(each)) == 2 for each in drawn)


def test_the_command_names_liars_and_what_is_missing(tmp_path: Path) -> None:
    inputs, labels = samples(0, 240)
    np.savez(tmp_path / "mine.npz", x=inputs, y=labels)

    def simulate(*more: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["simulate", *map(str, (
            "--data", tmp_path / "mine.npz", "--clients", 4, "--rounds", 1, "--seeds", 1, "--alpha", 1,
            "--local", "epochs=1", "--out", tmp_path / "out", *more))])  # fmt: skip
        return done.exit_code, " ".join(done.output.split())

    for wrong, message in ((["--liars", 2], "--liars and --lie go together"), (["--lie", "lazy"], "go together"),
                           (["--liars", 5, "--lie", "lazy"], "5 of 4 clients"),
                           (["--liars", 1, "--lie", "fib"], "label-shift")):  # fmt: skip
        code, said = simulate(*wrong)
        assert code == 1 and message in said, said
    code, said = simulate("--liars", 2, "--lie", "lazy")
    assert code == 0 and "2 liars (lazy)" in said, said
    noted = json.loads((tmp_path / "out/seed-0/liars.json").read_text())
    names = [f"client-{number}" for number in range(4)]
    assert noted == {"lie": "lazy", "clients": liars.choose(names, 2, 0)}
