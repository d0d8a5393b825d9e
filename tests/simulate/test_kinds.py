"""Data sets of every kind of task: what their labels are seen to be, what they are dealt by, what is shown of them."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from contract.tasks import ACCURACY, TASKS, TaskKind
from contract.wire.report import Bytes, Cost, RoundCost
from potstill import drawing
from potstill.cli import app
from potstill.simulate import costs, datasets, kinds, liars, made
from potstill.simulate import experiment as experiments
from potstill.simulate.config import SimulationError
from potstill.simulate.settings import Experiment
from service.domain.costs import TARGETS, to_target

from .test_tasks import samples

VECTORS, IMAGES, IDS = np.zeros((4, 3), np.float32), np.zeros((4, 1, 8, 8), np.float32), np.ones((4, 3), np.int64)
FLAGS = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]])


@pytest.mark.parametrize(
    ("inputs", "labels", "kind"),
    [
        (VECTORS, np.array([0, 1, 2, 1]), "classification"),
        (VECTORS, np.array([0.0, 1.0, 2.0, 1.0]), "classification"),
        (VECTORS, np.array([0.5, 1, 2, 1]), "regression"),
        (VECTORS, FLAGS, "multilabel"),
        (VECTORS, FLAGS.astype(np.float32), "multilabel"),
        (VECTORS, FLAGS * 0.5, "regression"),
        (VECTORS, FLAGS * 7, "regression"),
        (IDS, FLAGS[:, :2], "multilabel"),
        (IDS, IDS + 3, "tokens"),
        (IMAGES, np.zeros((4, 8, 8), np.uint8), "dense"),
        (np.zeros((4, 1, 2, 8, 8), np.float32), np.zeros((4, 2, 8, 8), np.int64), "dense"),
    ],
)
def test_kinds_are_seen_from_labels(inputs: np.ndarray, labels: np.ndarray, kind: TaskKind) -> None:
    assert kinds.seen(inputs, labels, "data") == kind


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (IDS, FLAGS, r"could be of multilabel or tokens; say which with --task"),
        (IMAGES, np.zeros((4, 4, 4), np.uint8), r"are of no kind of task that --task names .*255 ignored"),
        (IMAGES, np.full((4, 8, 8), 0.5), "are of no kind"),
    ],
)
def test_labels_that_say_too_little_are_refused(inputs: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(SimulationError, match=f"mine: labels .*{message}"):
        kinds.seen(inputs, labels, "mine")


def strata_of(kind: TaskKind, classes: int, inputs: np.ndarray, labels: np.ndarray) -> list[int]:
    return [int(each) for each in kinds.strata(labels, kinds.task_of(kind, classes, inputs))]


def test_strata_are_the_rarest_label_a_tenth_or_the_most_frequent_class() -> None:
    assert strata_of("classification", 3, VECTORS, np.array([2, 0, 1, 1])) == [2, 0, 1, 1]
    # labels are there 1, 3 and 2 times; the third sample has none
    flags = np.array([[0, 1, 1], [1, 1, 1], [0, 0, 0], [0, 1, 0]], np.uint8)
    assert strata_of("multilabel", 3, VECTORS, flags) == [2, 0, 3, 1]
    values = np.array([[5.0], [-1.0], [3.0], [9.0], [4.0]], np.float32)
    assert strata_of("regression", 1, np.zeros((5, 3), np.float32), values) == [6, 0, 2, 8, 4]
    # class 0 is most frequent of all; 255 counts nowhere
    masks = np.zeros((3, 4, 4), np.uint8)
    masks[0, 0], masks[0, 1, :2], masks[1, 0, 0], masks[1, 2:] = 1, 2, 2, 255
    assert strata_of("dense", 3, np.zeros((3, 1, 4, 4), np.float32), masks) == [1, 2, 0]
    tags = np.array([[0, 0, 0, 2], [0, 1, 1, -100], [0, 0, -100, -100]])
    assert strata_of("tokens", 3, np.ones((3, 4), np.int64), tags) == [2, 1, 0]


def test_made_sets_are_the_same_each_time_and_have_what_they_say() -> None:
    one, other = (made.sentences(np.random.default_rng(0), 60) for _ in range(2))
    np.testing.assert_array_equal(one.inputs, other.inputs)
    assert one.users is not None and one.strata is not None and len(np.unique(one.users)) == 60
    assert set(one.strata) == set(range(made.TOPICS))
    np.testing.assert_array_equal(one.labels[:, :-1][one.labels[:, :-1] >= 0], one.inputs[:, 1:][one.inputs[:, 1:] > 0])
    assert (one.labels[one.inputs == 0] == -100).all()
    followers: dict[tuple[int, int], set[int]] = {}
    for topic, words, next_ in zip(one.strata, one.inputs, one.labels, strict=True):
        for word, following in zip(words, next_, strict=True):
            if following >= 0:
                followers.setdefault((int(topic), int(word)), set()).add(int(following))
    assert max(map(len, followers.values())) == len(made.FOLLOWERS)
    shapes = made.shapes(np.random.default_rng(0), 40)
    for label, figure in zip(shapes.labels, shapes.dealt_by, strict=True):
        assert set(np.unique(label)) == {0, figure}
    assert set(shapes.dealt_by) == set(made.FIGURES)


@pytest.mark.parametrize("name", ["digit-pairs", "diabetes", "shapes", "sentences"])
def test_made_sets_are_dealt_by_their_strata(name: str) -> None:
    loaded = datasets.load(name)
    again = datasets.load(name)
    np.testing.assert_array_equal(loaded.train.inputs, again.train.inputs)
    experiment = Experiment.model_validate({"recipes": [{"name": "fedavg"}], "clients": 5, "data": name})
    dealt = experiments.deal(experiment, loaded, 3)
    assert dealt.holdings.shape == (5, loaded.strata) and dealt.holdings.sum(1).min() >= 10
    shares = dealt.holdings / dealt.holdings.sum(1, keepdims=True)
    assert shares.max() > 2 / loaded.strata, "Dirichlet(0.1) is skewed"
    test = np.bincount(dealt.test.dealt_by, minlength=loaded.strata) / len(dealt.test)
    whole = np.bincount(loaded.train.dealt_by, minlength=loaded.strata) / len(loaded.train)
    assert np.abs(test - whole).max() < 0.02, "every stratum keeps its share in the test set"
    with pytest.raises(SimulationError, match=f"task: {name} has labels of {loaded.kind}, none of classification"):
        datasets.load(name, kind="classification")


def test_a_set_from_a_folder_has_the_next_tokens_of_its_texts(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "agnews").mkdir()
    for name in ("train-10k", "test"):
        with gzip.open(tmp_path / "agnews" / f"{name}.jsonl.gz", "wt") as lines:
            lines.write("".join(json.dumps({"text": f"word {n} again", "label": n % 4}) + "\n" for n in range(8)))
    loaded = datasets.load("agnews-next", tmp_path)
    assert loaded.train.inputs.shape == (8, 16) and loaded.vocabulary == loaded.num_classes == 256
    assert loaded.train.labels[0, :3].tolist() == [*loaded.train.inputs[0, 1:3].tolist(), -100]
    assert loaded.train.dealt_by.tolist() == [0, 1, 2, 3] * 2


def simulate(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


@pytest.mark.parametrize("kind", ["multilabel", "regression", "dense", "tokens"])
def test_a_file_of_every_kind_is_simulated_and_shown_by_its_own_figures(kind: TaskKind, tmp_path: Path) -> None:
    inputs, labels = samples(kind, 3, 60)
    np.savez(tmp_path / "mine.npz", x=inputs, y=labels)
    out, chosen = tmp_path / "out", {"dense": ("unet-small", "width=2")}.get(kind, ("mlp", "hidden=[4]"))
    network = () if kind == "tokens" else ("--architecture", chosen[0], "--architecture-option", chosen[1])
    done = simulate(
        "--data", tmp_path / "mine.npz", "--clients", 2, "--rounds", 1, "--seeds", 1, "--recipe", "feddf", *network,
        "--local", "epochs=1", "--option", "schedule.epochs=1", "--target", 0.5, "--out", out, "--alpha", 1,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    main, *others = TASKS[kind].metrics
    with (out / "metrics.csv").open() as file:
        first, last = csv.DictReader(file)
    assert first[main.name] and all(last[name] for name in (main.name, f"average_{main.name}", f"ensemble_{main.name}"))
    assert all(last[each.name] for each in others)
    table = (out / "table.md").read_text()
    assert f"Test {drawing.unit(main)}".replace(", percent", " in percent") in table
    assert f"{others[0].name}, last" in table
    assert (out / f"{main.name}.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads((out / "seed-0" / "feddf" / "report.json").read_text())
    assert told["rounds"][0][main.key] == pytest.approx(float(last[main.name]), abs=1e-6)
    reached = any(not main.better(0.5, float(each[main.name])) for each in (first, last))
    assert (told["targets"][0]["round"] is not None) == reached


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "diabetes", "--metric", "accuracy"], "metric: 'accuracy' is none of this kind .* rmse, mae, r2"),
        (["--data", "diabetes", "--recipe", "feduv"], "feduv: .*regression"),
        (["--data", "diabetes", "--liars", 1, "--lie", "label-shift"], "label-shift moves classes, .* take sign-flip"),
        (["--data", "shapes", "--target", 50], "target: mean_iou is a share, in .*; 50 is none"),
        (["--data", "shapes", "--architecture", "mlp"], "fedavg: .*unet-small"),
        (["--data", "digits", "--task", "rings"], "task: Input should be"),
        (["--data", "mine.npz", "--task", "regression"], "regression.*floats|floats.*regression|one sample have shape"),
    ],
)
def test_what_has_no_meaning_is_refused_with_what_to_take(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import re

    monkeypatch.chdir(tmp_path)
    np.savez("mine.npz", x=IMAGES, y=np.zeros((4, 8, 8), np.uint8))
    done = simulate("--clients", 4, "--out", tmp_path / "out", *arguments)
    assert done.exit_code == 1, done.output
    assert re.search(message, done.stderr.replace("\n", " ")), done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "out").exists()


def test_files_say_what_they_are_dealt_by(tmp_path: Path) -> None:
    values = np.linspace(0, 1, 20)
    wards = np.array(["east", "west"] * 10)
    np.savez(tmp_path / "mine.npz", x=np.zeros((20, 3), np.float32), y=values, strata=wards)
    loaded = datasets.load(str(tmp_path / "mine.npz"))
    assert (loaded.kind, loaded.strata, loaded.dealt_by) == ("regression", 2, "stratum")
    assert loaded.train.dealt_by.tolist() == [0, 1] * 10
    np.savez(tmp_path / "mine.npz", x=np.zeros((20, 3), np.float32), y=values, strata=values)
    with pytest.raises(SimulationError, match=r"strata are float64 \[20\]; give a name or a whole number"):
        datasets.load(str(tmp_path / "mine.npz"))


def test_lies_keep_what_is_ignored() -> None:
    images, tokens = kinds.task_of("dense", 3, IMAGES), kinds.task_of("tokens", 3, IDS)
    masks = np.array([[0, 2], [255, 1]], np.uint8)
    assert liars.shifted((IMAGES, masks), images)[1].tolist() == [[1, 0], [255, 2]]
    assert liars.shifted((IDS, np.array([[0, -100, 2]])), tokens)[1].tolist() == [[1, -100, 0]]
    flags = kinds.task_of("multilabel", 3, VECTORS)
    assert liars.shifted((VECTORS, FLAGS), flags)[1].tolist() == np.roll(FLAGS, 1, axis=1).tolist()


def test_targets_of_errors_are_reached_from_above() -> None:
    rmse = TASKS["regression"].metrics[0]
    rounds = [
        RoundCost(round=number, state="published", measured=value, devices=1, answered=1, files=Bytes(up=1))
        for number, value in enumerate((0.9, 0.7, 0.5), start=1)
    ]
    found = [to_target(target, 1.2, Cost(), rounds, rmse).round for target in (1.5, 0.7, 0.6, 0.1)]
    assert found == [0, 2, 3, None]
    assert to_target(0.5, None, Cost(), rounds, ACCURACY).round is None
    assert costs.targets_of(rmse, None) == () and costs.targets_of(ACCURACY, None) == TARGETS
