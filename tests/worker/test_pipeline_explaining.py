"""Every recipe's round explains itself, changes no model by it, and names who sends nothing of its own."""

import base64
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.recipes.presets import build
from contract.tensors import TensorFile
from worker.pipeline import run, samples
from worker.specs import JobFailure

from .test_pipeline_outliers import changed, ignore


def back(sent: Any, base: Any) -> Any:
    return base


@pytest.mark.parametrize("name", ["fedavg", "feddf", "fedgo-small", "fedavgm"])
def test_it_changes_no_model(federation: Any, tmp_path: Path, name: str) -> None:
    made = federation(tmp_path, build(name))
    updates = made.updates()
    plain, told = (run(made.spec(kind, updates, explain=kind), ignore) for kind in ("off", "votes"))
    assert "explanation" not in plain.metrics and "explain" in told.metrics["seconds"]
    for model, path in plain.models.items():
        assert path.read_bytes() == told.models[model].read_bytes()


def test_each_client_of_an_average_can_be_left_out(federation: Any, tmp_path: Path) -> None:
    made = federation(tmp_path, build("fedavg"))
    updates = made.updates()
    found = run(made.spec("told", updates, explain="votes"), ignore).metrics["explanation"]
    assert set(found["clients"]) == set(made.names) and found["flags"] == {}
    assert found["votes"]["set"] == "test" and found["votes"]["compared_with"] == "labels"
    assert found["without"]["model"] == "average"
    for index, name in enumerate(made.names):
        others = run(made.spec(f"without-{index}", updates[:index] + updates[index + 1 :], explain="votes"), ignore)
        told = others.metrics["explanation"]["without"]["accuracy"]
        assert found["clients"][name]["accuracy_without"] == pytest.approx(told, abs=1e-6)


def test_who_teaches_is_told_by_class_and_what_would_be_relabelled(federation: Any, tmp_path: Path) -> None:
    made = federation(tmp_path, build("feddf"))
    metrics = run(made.spec("told", made.updates(), explain="votes"), ignore).metrics
    found = metrics["explanation"]
    assert found["without"]["model"] == "ensemble"
    assert found["without"]["accuracy"] == pytest.approx(metrics["ensemble"]["accuracy"])
    assert sum(each["decides"] for each in found["clients"].values()) == pytest.approx(1)
    for each in found["clients"].values():
        assert 0 <= each["relabels"] <= 1 and len(each["trust"]) == 3


@pytest.mark.parametrize(("name", "weights"), [("fedavg", "weights"), ("feddf", "teacher_weights")])
def test_images_over_which_the_clients_are_divided_are_shown(
    federation: Any, tmp_path: Path, name: str, weights: str
) -> None:
    made = federation(tmp_path, build(name))
    spec = made.spec("told", made.updates(), explain="votes")
    metrics = run(spec, ignore).metrics
    found = metrics["explanation"]["samples"]
    with TensorFile(spec.datasets.test) as file:
        inputs, labels = file.read("inputs"), file.read("labels")
    assert 0 < len(found) <= samples.MOST
    shown = inputs[[each["row"] for each in found]]
    low, high = shown.min(), shown.max()
    alike = []
    for each, pixels in zip(found, shown, strict=True):
        image = each["image"]
        values = np.frombuffer(base64.b64decode(image["pixels"]), np.uint8).reshape(image["height"], image["width"])
        assert np.abs(values - (pixels[0] - low) / (high - low) * 255).max() <= 0.51
        assert each["label"] == labels[each["row"]] and (each["together"] is None) == (name == "fedavg")
        assert {vote["client"] for vote in each["votes"]} == set(made.names)
        assert sum(vote["weight"] for vote in each["votes"]) == pytest.approx(1, abs=1e-3)
        alike.append(max(Counter(vote["vote"] for vote in each["votes"]).values()))
    assert alike == sorted(alike), "those that divide them most come first"


def test_the_most_divided_come_first_and_updates_alone_show_none(federation: Any, tmp_path: Path) -> None:
    assert samples.divided(np.array([[0, 1, 1], [0, 2, 1], [0, 3, 2]])).tolist() == [1, 2, 0]
    assert samples.divided(np.array([8 * [0, 0, 0] + [0], 24 * [0] + [1]])).tolist() == [24, 0, 3, 6, 10, 13, 17, 20]
    made = federation(tmp_path, build("fedavg"))
    spec = made.spec("told", made.updates(), explain="updates")
    assert "samples" not in run(spec, ignore).metrics["explanation"]


def test_updates_alone_ask_no_network(federation: Any, tmp_path: Path) -> None:
    made = federation(tmp_path, build("fedavg"))
    found = run(made.spec("told", made.updates(), explain="updates"), ignore).metrics["explanation"]
    assert set(found) == {"clients", "flags"}
    assert all({"cosine", "to_mean", "pull"} == set(each) for each in found["clients"].values())


def test_a_copy_and_the_model_sent_back_are_named(federation: Any, tmp_path: Path) -> None:
    made = federation(tmp_path, build("fedavg"))
    updates = made.updates()
    updates[0] = changed(made, updates[0], back)
    updates[3] = updates[3].model_copy(update={"weights": updates[1].weights})
    flags = run(made.spec("told", updates, explain="votes"), ignore).metrics["explanation"]["flags"]
    assert {name: [flag["kind"] for flag in each] for name, each in flags.items()} == {
        "ward-1": ["idle"], "ward-2": ["copies"], "ward-4": ["copies"],
    }  # fmt: skip


def test_a_network_that_cannot_be_asked_spoils_no_round(
    federation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise JobFailure("non_finite", "the network gives NaN or infinity")

    made = federation(tmp_path, build("fedavg"))
    monkeypatch.setattr("worker.pipeline.explaining._average_without", fail)
    result = run(made.spec("told", made.updates(), explain="votes"), ignore)
    assert "votes" not in result.metrics["explanation"] and set(result.models) == {"main"}
    assert "explained without votes: the network gives NaN" in caplog.text
