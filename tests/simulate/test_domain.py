"""Server data of another domain: what is drawn, what is done to it, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from potstill.samples import Samples
from potstill.simulate import domain
from potstill.simulate import experiment as experiments
from potstill.simulate.config import SimulationError
from potstill.simulate.loaded import Loaded
from potstill.simulate.settings import Experiment

from .small import simulate
from .test_command import loaded, make, small

IMAGES = (1, 2, 2)


def deal(experiment: Experiment, data: Loaded, seed: int = 0) -> experiments.Dealt:
    experiments.check(experiment, data)
    return experiments.deal(experiment, data, seed)


def same(one: Samples, other: Samples) -> bool:
    return np.array_equal(one.inputs, other.inputs) and np.array_equal(one.labels, other.labels)


def model(out: Path, recipe: str) -> bytes:
    """Return the file of the last model of two rounds with seed 0."""
    (made,) = (out / "seed-0" / recipe / "rounds/00002/job").glob("*.safetensors")
    return made.read_bytes()


def test_images_are_changed_as_said() -> None:
    """[[a, b], [c, d]] inverted is 1 less each; a quarter turn to the left makes it [[b, d], [a, c]]."""
    image = np.array([[[[0.0, 0.25], [0.5, 1.0]]]], np.float32)
    samples = Samples(image, np.array([7]))
    inverted, rotated = domain.changed(samples, "invert"), domain.changed(samples, "rotate")
    assert inverted.inputs.tolist() == [[[[1.0, 0.75], [0.5, 0.0]]]]
    assert rotated.inputs.tolist() == [[[[0.25, 1.0], [0.0, 0.5]]]]
    assert inverted.labels.tolist() == rotated.labels.tolist() == [7]
    assert rotated.inputs.flags.c_contiguous and rotated.inputs.dtype == np.float32


def test_only_the_servers_samples_become_others() -> None:
    """Clients, test and validation are those of the same seed without it, and so is the server's number of samples."""
    plain = loaded(IMAGES)
    other = np.random.default_rng(9).random((300, *IMAGES), dtype=np.float32)
    told: dict[str, Any] = {"validation_samples": 5}
    before = deal(make(**told), plain)
    for data, more in (
        (Loaded("mine", 3, plain.train, other=other), {"server_data": "other"}),
        (plain, {"server_transform": "invert"}),
    ):
        after = deal(make(**told, **more), data)
        assert same(after.test, before.test) and same(after.validation, before.validation)
        assert all(same(after.clients[name], each) for name, each in before.clients.items())
        assert len(after.server) == len(before.server) and not same(after.server, before.server)
    np.testing.assert_allclose(after.server.inputs, 1 - before.server.inputs)


def test_another_sets_samples_are_drawn_by_seed() -> None:
    other = np.arange(400, dtype=np.float32).reshape(100, *IMAGES)
    data = Loaded("mine", 3, loaded(IMAGES).train, other=other)
    one, again, two = (deal(make(server_data="other"), data, seed).server.inputs[:, 0, 0, 0] for seed in (1, 1, 2))
    assert one.tolist() == again.tolist() != two.tolist()
    assert len(set(one.tolist())) == len(one) and set(one.tolist()) <= set(other[:, 0, 0, 0].tolist())


@pytest.mark.parametrize(
    ("more", "other", "message"),
    [
        ({}, np.zeros((50, 1, 3, 3), np.float32), r"server_data: .* float32 \[1, 3, 3\], .* float32 \[1, 2, 2\]"),
        ({}, np.zeros((50, *IMAGES), np.int64), r"server_data: its inputs are int64"),
        ({"server_samples": 60}, np.zeros((50, *IMAGES), np.float32), "server_samples: 60 .* has 50"),
        (
            {"recipes": [{"name": "feddf", "options": {"data": {"kind": "labeled"}, "early_stop": None}}]},
            np.zeros((50, *IMAGES), np.float32),
            "feddf: its students learn the labels .* leave --server-data out",
        ),
    ],
)
def test_samples_that_do_not_fit_are_refused(more: dict[str, Any], other: np.ndarray, message: str) -> None:
    data = Loaded("mine", 3, loaded(IMAGES).train, other=other)
    with pytest.raises(SimulationError, match=message):
        deal(make(**{"server_data": "other", **more}), data)


@pytest.mark.parametrize(
    ("shape", "how", "message"),
    [((6,), "invert", r"invert changes images; .* float32 \[6\]"), ((1, 2, 3), "rotate", "square images; .* 2x3")],
)
def test_what_cannot_be_turned_is_refused(shape: tuple[int, ...], how: str, message: str) -> None:
    with pytest.raises(SimulationError, match=f"server_transform: .*{message}"):
        deal(make(server_transform=how, recipes=[{"name": "fedavg"}]), loaded(shape))


def test_the_command_distils_on_another_file(mine: Path, tmp_path: Path) -> None:
    """Averaging ignores it, distillation learns from it; a run that is there is not taken for one with other data."""
    np.savez(tmp_path / "noise.npz", x=np.random.default_rng(3).normal(0, 3, (90, 6)).astype(np.float32))
    recipes = ("--recipe", "fedavg", "--recipe", "feddf", "--option", "schedule.epochs=1")
    first, second = tmp_path / "first", tmp_path / "second"
    assert small(mine, first, *recipes).exit_code == 0
    done = small(mine, second, *recipes, "--server-data", tmp_path / "noise.npz")
    assert done.exit_code == 0, done.output
    one, two = ({name: model(out, name) for name in ("fedavg", "feddf")} for out in (first, second))
    assert one["fedavg"] == two["fedavg"] and one["feddf"] != two["feddf"]
    again = simulate("--out", first, "--resume", "--server-data", tmp_path / "noise.npz")
    assert again.exit_code == 1 and "other data or settings" in again.stderr
