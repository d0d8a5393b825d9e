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
from potstill.simulate.show import title_of

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


def test_clients_images_differ_in_turn_and_all_others_are_of_all_kinds() -> None:
    """Of four clients the first has the images as they are, the others a quarter turn more each."""
    plain, turned = deal(make(), loaded(IMAGES)), deal(make(client_transform="rotate"), loaded(IMAGES))
    for number, name in enumerate(plain.clients):
        one, other = plain.clients[name], turned.clients[name]
        np.testing.assert_array_equal(other.inputs, np.rot90(one.inputs, number % 4, axes=(2, 3)))
        assert other.labels.tolist() == one.labels.tolist()
    for one, other in ((plain.server, turned.server), (plain.test, turned.test)):
        kinds = [[np.array_equal(b, np.rot90(a, k, axes=(1, 2))) for k in range(4)] for a, b in
                 zip(one.inputs, other.inputs, strict=True)]  # fmt: skip
        assert np.ptp(np.sum(kinds, axis=0)) <= 1 and np.sum(kinds) == len(one)
        assert one.labels.tolist() == other.labels.tolist()
    inverted = deal(make(client_transform="invert"), loaded(IMAGES))
    first, second = list(plain.clients)[:2]
    assert same(inverted.clients[first], plain.clients[first])
    np.testing.assert_array_equal(inverted.clients[second].inputs, 1 - plain.clients[second].inputs)
    again = deal(make(client_transform="rotate"), loaded(IMAGES))
    assert same(again.server, turned.server) and same(again.test, turned.test)


def test_a_skewed_server_keeps_a_share_of_half_of_the_classes() -> None:
    """Of 12, 10, 8 and 3 samples of four classes two keep 20 %: 2, 2, 2 and 1, the others all; order and data stay."""
    labels = np.repeat(np.arange(4), [12, 10, 8, 3])
    samples = Samples(np.arange(33, dtype=np.float32)[:, None], labels)
    seen = set()
    for seed in range(20):
        found = domain.skewed(samples, 0.2, np.random.default_rng(seed))
        counts = np.bincount(found.labels, minlength=4).tolist()
        assert sum(few == one for few, one in zip(counts, [2, 2, 2, 1], strict=True)) == 2
        assert sum(all_ == one for all_, one in zip(counts, [12, 10, 8, 3], strict=True)) == 2
        assert np.all(np.diff(found.inputs[:, 0]) > 0)
        assert found.labels.tolist() == labels[found.inputs[:, 0].astype(int)].tolist()
        seen.add(tuple(counts))
    assert len(seen) > 2
    told: dict[str, Any] = {"samples": 60}
    before, after = deal(make(**told), loaded(IMAGES)), deal(make(**told, server_skew=0.5), loaded(IMAGES))
    assert same(after.test, before.test) and len(after.server) < len(before.server)
    assert all(same(after.clients[name], each) for name, each in before.clients.items())


@pytest.mark.parametrize(("field", "value"), [("server_skew", 0.5), ("client_transform", "invert")])
def test_samples_of_another_set_are_neither_skewed_nor_turned(field: str, value: object) -> None:
    data = Loaded("mine", 3, loaded(IMAGES).train, other=np.zeros((300, *IMAGES), np.float32))
    with pytest.raises(SimulationError, match=f"{field}: .* leave one out"):
        deal(make(**{"server_data": "other", field: value}), data)


def test_clients_vectors_cannot_be_turned() -> None:
    with pytest.raises(SimulationError, match="client_transform: rotate changes images"):
        deal(make(client_transform="rotate", recipes=[{"name": "fedavg"}]), loaded((6,)))


def test_the_command_takes_both_and_the_title_says_so(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=loaded(IMAGES).train.inputs, y=loaded(IMAGES).train.labels)
    told = ("--server-skew", 0.5, "--client-transform", "invert", "--architecture", "mlp")
    done = small(tmp_path / "mine.npz", tmp_path / "out", *told)
    assert done.exit_code == 0, done.output
    kept = Experiment.model_validate_json((tmp_path / "out" / "experiment.json").read_text())
    assert title_of(kept).endswith("images of clients: invert, server: 0.5 of half the classes")


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
