"""F: what a federation must not do: divide by nothing, spread poison, count twice or late, wait for ever, miscount."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk import train_and_push
from contract.tensors import check_file
from service.infra.sums import sums_of
from tests.cases.conftest import NETWORK, Arrays, Invite
from tests.cases.wire import put
from tools.deployment import Deployment, wait_for


def network(value: float) -> Arrays:
    """Return weights that all have one value."""
    return NETWORK | {name: NETWORK[name] * 0 + np.float32(value) for name in ("conv.weight", "fc.weight", "fc.bias")}


def published(fed: Any, index: int) -> Any:
    """Return a round once it is published."""
    wait_for(lambda: fed.round(index).state == "published", why=f"round {index} is not published")
    return fed.round(index)


def test_f01_weights_that_sum_to_zero(party: Invite) -> None:
    """No samples, no update: refused by name; a round of nothing else leaves the global model as it is."""
    fed = party("a", "b", min_updates=1)
    before = fed.state().models["main"].digest
    for count in ("0", "-1", "nan", "1e3"):
        answer = put(fed.url(), fed.tokens["a"], fed.body(num_samples=count))
        assert (answer.status, answer.problem["field"]) == (422, "num_samples")
    assert fed.state().models["main"].digest == before
    assert fed.push("b", network(5), num_samples=5).status == 201
    fed.deployment.operator.close_round(fed.round().id)
    published(fed, 1)
    assert (fed.model()["fc.bias"] == 5).all()


def test_f03_one_nan_poisons_nobody(party: Invite) -> None:
    """The poisoner is refused, with tensor and index, and the other two make the round."""
    fed = party("a", "b", "mallory", min_updates=2, clients_per_round=2, over_selection=1.5)
    for poison, index in ((np.nan, [3, 2]), (np.inf, [0, 0]), (-np.inf, [9, 7])):
        bad = network(1)
        bad["fc.weight"] = bad["fc.weight"].copy()
        bad["fc.weight"][tuple(index)] = poison
        answer = fed.push("mallory", bad)
        assert answer.status == 422
        assert (answer.problem["tensor"], answer.problem["index"]) == ("fc.weight", index)
    assert fed.push("a", network(1)).status == 201
    assert fed.push("b", network(3)).status == 201
    weights = {person.name: person.weight for person in published(fed, 1).participants}
    assert (weights["a"], weights["b"], weights["mallory"]) == (0.5, 0.5, None)
    assert all(np.isfinite(array).all() for array in fed.model().values())
    assert (fed.model()["fc.weight"] == 2).all()


def test_f05_late_and_stale_updates(party: Invite) -> None:
    """What was trained for another round is told which one is current, and counts in none."""
    fed = party("a", "b", total=4)
    old_url, old_body = fed.url(), fed.body(network(9))
    for value in (1, 2):
        assert fed.push("a", network(value)).status == 201
        assert fed.push("b", network(value)).status == 201
        published(fed, value)
        fed.reach(value + 1)
    late = put(old_url, fed.tokens["a"], old_body)
    assert late.status == 409
    assert (late.problem["current_round_id"], late.problem["current_round"]) == (fed.round().id, 3), late.problem
    stale = put(fed.url(), fed.tokens["a"], old_body)
    assert (stale.status, stale.problem["expected"]) == (409, fed.round().base_models["main"])
    rounds = f"{fed.deployment.url}/v1/rounds"
    assert put(f"{rounds}/update", fed.tokens["a"], old_body).status in (404, 405, 422)
    assert put(f"{rounds}/rnd_99/update", fed.tokens["a"], old_body).status == 404
    assert fed.round().answered == 0
    assert (fed.model()["fc.bias"] == 2).all()


def test_f07_the_same_client_twice(party: Invite) -> None:
    """One client counts once: other bytes are refused, and two clients are not three."""
    fed = party("a", "b", "c", min_updates=2)
    assert fed.push("a", network(0)).status == 201
    second = fed.push("a", network(7))
    assert second.status == 409 and "first one counts" in second.problem["detail"]
    assert fed.push("b", network(1)).status == 201
    assert (fed.round().state, fed.round().answered) == ("collecting", 2)
    fed.deployment.operator.close_round(fed.round().id)
    published(fed, 1)
    assert (fed.model()["fc.bias"] == 0.5).all()


def test_f09_nobody_waits_for_ever(party: Invite) -> None:
    """At the deadline a round with too few is skipped, and says how many came; a quorum of one is that update."""
    fed = party("a", "b", "c", min_updates=3, deadline_seconds=2, total=1)
    fed.push("a", network(1))
    fed.push("b", network(1))
    wait_for(lambda: fed.round(1).state == "skipped", why="the round waits on")
    assert "2 of 3" in (fed.round(1).reason or "")
    wait_for(lambda: fed.state().state in ("failed", "paused"), why="the federation looks alive")
    assert fed.state().detail
    alone = party("a", min_updates=1, total=1)
    only = {name: np.array(value) for name, value in network(0.1).items()}
    only["fc.weight"] = np.random.default_rng(0).standard_normal((10, 8)).astype(np.float32)
    assert alone.push("a", only).status == 201
    published(alone, 1)
    assert all(alone.model()[name].tobytes() == only[name].tobytes() for name in only), "one client, its own bits"


@pytest.mark.slow
def test_f11_a_crash_while_publishing(party: Invite, live: Deployment) -> None:
    """API and worker die at odd moments between the last update and the published model: old or new, and whole."""
    random = np.random.default_rng(11)
    fed = party("a", "b", total=4)
    for index in range(1, 5):
        fed.reach(index)
        before, url = fed.state().models["main"].digest, fed.url()
        bodies = {name: fed.body(network(index + number)) for number, name in enumerate(("a", "b"))}
        for name, body in bodies.items():
            assert put(url, fed.tokens[name], body).status == 201
        threading.Event().wait(float(random.uniform(0, 0.5)))
        victim = ("api", "worker")[index % 2]
        live.kill(victim)
        {"api": live.start_api, "worker": live.start_worker}[victim]()
        now = fed.state().models["main"].digest
        shown = published(fed, index)
        assert now in (before, fed.state().models["main"].digest)
        assert shown.answered == 2
        assert (fed.model()["fc.bias"] == index + 0.5).all()
    for model in live.operator.models(federation=fed.id).items:
        path = live.home / "blobs" / model.digest.removeprefix("sha256-")[:2] / model.digest.removeprefix("sha256-")
        path = path if path.exists() else next((live.home / "blobs").rglob(model.digest.removeprefix("sha256-")))
        assert sums_of(path).digest == model.digest
        check_file(path)


def test_f15_label_spaces_that_differ(party: Invite) -> None:
    """A head for other classes is refused by its tensor."""
    fed = party("a", "b")
    other = NETWORK | {"fc.weight": np.ones((7, 8), np.float32), "fc.bias": np.zeros(7, np.float32)}
    answer = fed.push("a", other)
    assert answer.status == 422
    assert answer.problem["mismatched"] == ["fc.weight", "fc.bias"]
    assert answer.problem["actual"] == {"dtype": "F32", "shape": [7, 8]}


def test_f18_the_mean_of_those_who_came(party: Invite) -> None:
    """One sample of [0, 8], three of [4, 0], one absent: [3, 2], and the weights are shown and sum to one."""
    fed = party("a", "b", "absent", min_updates=2)
    first, second = network(0), network(0)
    first["fc.bias"] = np.array([0, 8] * 5, np.float32)
    second["fc.bias"] = np.array([4, 0] * 5, np.float32)
    assert fed.push("b", second, num_samples=3).status == 201
    assert fed.push("a", first, num_samples=1).status == 201
    fed.deployment.operator.close_round(fed.round().id)
    shown = {person.name: person.weight for person in published(fed, 1).participants}
    assert fed.model()["fc.bias"].tolist() == [3, 2] * 5
    assert shown == {"a": 0.25, "b": 0.75, "absent": None}


def _images(count: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(count)
    return random.random((count, 1, 8, 8), dtype=np.float32), (np.arange(count) % classes).astype(np.int64)


def test_f20_empty_and_tiny_data(live: Deployment, tmp_path: Path) -> None:
    """No samples: an error before any request. One sample, one short batch, one class: trained and counted truly."""
    with pytest.raises(ValueError, match="sample"):
        train_and_push("http://127.0.0.1:9", _images(0, 1), federation="x", join_token="y", state_dir=tmp_path / "none")
    body = {
        "name": "tiny",
        "task": {"num_classes": 4, "input": {"shape": [1, 8, 8]}},
        "prototypes": [{"architecture": "cnn-digits"}],
        "recipe": {"name": "fedavg"},
        "local": {"epochs": 1, "batch_size": 8},
        "rounds": {"total": 1, "min_clients": 3, "min_updates": 3},
    }
    from contract.wire.federations import FederationCreate

    created = live.operator.create_federation(FederationCreate.model_validate(body))
    live.operator.start_federation(created.id)
    sizes, errors = {"one": (1, 1), "five": (5, 4), "same": (9, 1)}, []

    def device(name: str) -> None:
        try:
            train_and_push(
                live.url, _images(*sizes[name]), federation=created.id, join_token=created.join_token, name=name,
                state_dir=tmp_path / name, device="cpu", progress=False,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=device, args=(name,), daemon=True) for name in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not errors
    assert live.operator.federation(created.id).state == "finished"
    shown = live.operator.round(live.operator.rounds(created.id).items[0].id)
    assert {person.name: person.num_samples for person in shown.participants} == {"one": 1, "five": 5, "same": 9}


def test_c12_work_promised_by_an_answer(live: Deployment, party: Invite) -> None:
    """The last update is acknowledged, and the API dies at once: the round goes on by itself."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        fed = party("a", "b", total=1)
        first, last = fed.body(network(1)), fed.body(network(3))
        url = fed.url()
        assert put(url, fed.tokens["a"], first).status == 201
        answer = put(url, fed.tokens["b"], last)
        assert answer.status == 201, json.loads(answer.body)
        os.kill(live.pid("api"), how)
        if how == signal.SIGTERM:
            threading.Event().wait(0.2)
        live.kill("api")
        live.start_api()
        published(fed, 1)
        assert (fed.model()["fc.bias"] == 2).all()
