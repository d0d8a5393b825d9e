"""Ensembles that rounds keep, and predictions with them: what the round measured comes out again, bit for bit."""

import io
import itertools
import json
import re
import tarfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from sqlalchemy import select

from contract.tensors import TensorFile
from potstill.console import CliError
from potstill.ensembles import load_ensemble
from service.operations.ledger.clock import now
from service.persistence.tables import DiscriminatorRow, EnsembleMemberRow, JobRow, PredictionInputRow, PredictionRow
from tests.service.conftest import SettingsMaker
from tests.service.plant import Plant
from tests.service.world import Fed, World, refused
from worker.ledger import LostLease
from worker.specs import JobResult

pytestmark = pytest.mark.timeout(600)
SEEDS = itertools.count(1)
STEPS = {"schedule": {"steps": 3, "batch_size": 8}}
DISCRIMINATORS: dict[str, dict[str, Any]] = {
    "plan": {"architecture": "disc-mlp", "options": {"hidden": [4]}},
    "generator": {"options": {"hidden": [4], "latent": 3}, "critic_options": {"hidden": [4]}, "steps": 2},
}
RECIPES: dict[str, dict[str, Any]] = {
    "fedavg": {"recipe": {"name": "fedavg"}},
    "feddf": {"recipe": {"name": "feddf", "options": STEPS}},
    "fedbe": {"recipe": {"name": "fedbe", "options": {**STEPS, "members": {"samples": 3}}}},
    "fedsdd": {"recipe": {"name": "fedsdd", "options": {"groups": {"count": 2}, "members": {"rounds": 2}, **STEPS}}},
    "fedgo": {"recipe": {"name": "fedgo-small", "options": {"discriminators": DISCRIMINATORS, **STEPS}}},
}


@pytest.fixture(scope="module")
def plant(make_settings: SettingsMaker, world_of: type[World]) -> Iterator[Plant]:
    made = Plant(world_of(make_settings(device="cpu", torch_threads=1)))
    yield made
    made.close()


def over(plant: Plant, name: str, **changes: Any) -> Fed:
    """Return a federation of a recipe that keeps ensembles and is over."""
    rounds = {"total": 2, "keep_ensemble": True, **changes.pop("rounds", {})}
    seed = next(SEEDS)  # or federations would share blobs
    fed: Fed = plant.begin(test=True, rounds=rounds, retention={}, seed=seed, **(RECIPES[name] | changes))
    plant.go_on(fed)
    return fed


def set_of(plant: Plant, fed: Fed) -> str:
    return str(plant.world.show(fed)["datasets"]["test"])


def stored(plant: Plant) -> set[str]:
    return {f"sha256-{name.rpartition('/')[2]}" for name in plant.world.files()}


def members_of(plant: Plant, round_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plant.world.ok("GET", f"/v1/rounds/{round_id}/ensemble")["document"]["members"]
    return found


def digests_of(plant: Plant, round_id: str) -> set[str]:
    return {each["network"]["digest"] for each in members_of(plant, round_id)}


def predict(plant: Plant, fed: Fed, **wish: Any) -> dict[str, Any]:
    """Ask for a prediction, have it made, and return it."""
    url, body = f"/v1/federations/{fed.id}/predict", {"dataset": set_of(plant, fed), **wish}
    made = plant.world.ok("POST", url, json=body)
    plant.runner.drain()
    found: dict[str, Any] = plant.world.ok("GET", f"/v1/predictions/{made['id']}")
    return found


def file_of(plant: Plant, prediction: dict[str, Any]) -> dict[str, Any]:
    return load(plant.world.op("GET", prediction["url"]).content)


@pytest.mark.parametrize("name", RECIPES)
def test_an_ensemble_and_a_model_predict_with_the_accuracy_that_their_round_measured(plant: Plant, name: str) -> None:
    fed = over(plant, name)
    for index in (1, 2):
        round_ = plant.world.round(fed, index)
        alone = predict(plant, fed, round=index)
        assert (alone["state"], alone["error"], alone["ensemble"], alone["round"]) == ("done", None, False, index)
        assert alone["accuracy"] == round_["metrics"]["model"]["prototypes"]["main"]
    shown = plant.world.ok("GET", f"/v1/rounds/{round_['id']}/ensemble")
    assert shown["predicts"], shown["reason"]
    together = predict(plant, fed, ensemble=True)
    assert (together["state"], together["round"], together["model"]) == ("done", 2, None), together
    if name == "fedavg":
        assert shown["accuracy"] is None
        assert [each["name"] for each in shown["document"]["members"]] == list("abcd")
    else:
        assert together["accuracy"] == shown["accuracy"] == round_["metrics"]["ensemble"]["accuracy"]
        assert together["metrics"]["teacher_weights"].keys() == {each["name"] for each in shown["document"]["members"]}
    made = file_of(plant, together)
    assert (made["logits"].dtype, made["logits"].shape, made["predicted"].dtype) == (np.float32, (300, 3), np.int64)
    assert (made["logits"].argmax(axis=1) == made["predicted"]).all()
    assert together["digest"] != alone["digest"], "and they are two predictors"


def test_a_client_may_be_called_as_another_member_is(plant: Plant) -> None:
    names = ["mean of main", "sample 1 of main", "c", "d"]
    fed = over(plant, "fedbe", names=names, rounds={"total": 1})
    round_ = plant.world.round(fed, 1)
    members = members_of(plant, round_["id"])
    assert len({each["network"]["digest"] for each in members}) == len(members) == 3 + 1 + 4
    assert {each["client"] for each in members} == {None, *names}
    assert sum(round_["metrics"]["teacher_weights"].values()) == pytest.approx(1)
    assert predict(plant, fed, ensemble=True)["accuracy"] == round_["metrics"]["ensemble"]["accuracy"]


def test_what_is_kept_of_ensembles_follows_retention(plant: Plant) -> None:
    fed, world = over(plant, "fedbe"), plant.world
    first, second = (world.round(fed, index)["id"] for index in (1, 2))
    shown = world.ok("GET", f"/v1/rounds/{first}/ensemble")
    members = digests_of(plant, first)
    assert (shown["predicts"], set(shown["removed"])) == (False, members)
    url = f"/v1/federations/{fed.id}/predict"
    wish = {"dataset": set_of(plant, fed), "ensemble": True, "round": 1}
    assert refused(world.op("POST", url, json=wish)) == (410, "removed")
    assert refused(world.op("GET", f"/v1/rounds/{first}/ensemble/bundle")) == (410, "removed")
    told = [world.ok("GET", f"/v1/rounds/{each}")["ensemble"] for each in (first, second)]
    assert [(each["members"], each["complete"]) for each in told] == [(8, False), (8, True)]
    assert told[1]["accuracy"] == world.round(fed, 2)["metrics"]["ensemble"]["accuracy"]
    assert world.ok("GET", f"/v1/rounds/{second}/ensemble")["removed"] == []
    kept = {
        each["network"]["digest"] for each in world.ok("GET", f"/v1/rounds/{second}/ensemble")["document"]["members"]
    }
    assert kept <= stored(plant) and not members & stored(plant)
    world.ok("PUT", f"/v1/federations/{fed.id}/retention", json={"days": 0})
    assert not kept & stored(plant)


def test_rounds_without_an_ensemble_say_how_to_get_one(plant: Plant) -> None:
    world = plant.world
    fed = plant.begin({"name": "fedavg"}, rounds={"total": 2})
    url = f"/v1/federations/{fed.id}/predict"
    plant.answer(fed)
    plant.runner.drain()
    for problem in (
        world.op("GET", f"/v1/rounds/{world.round(fed, 1)['id']}/ensemble"),
        world.op("POST", url, json={"dataset": world.show(fed)["datasets"]["validation"], "ensemble": True}),
    ):
        assert refused(problem) == (404, "not-found")
        assert "rounds.keep_ensemble" in problem.json()["detail"]
    world.ok("PATCH", f"/v1/federations/{fed.id}/plan", json={"rounds": {"keep_ensemble": True}})
    third = world.round(fed, 2)["id"]
    plant.go_on(fed)
    problem = world.op("GET", f"/v1/rounds/{third}/ensemble")
    assert refused(problem) == (404, "not-found"), "it opened with the old plan"
    assert problem.json()["detail"] == "round 2 kept no ensemble", "and of what is over no plan can be changed"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"recipe": {"name": "ds-fl"}}, "no models that could predict"),
        (
            {"recipe": {"name": "feddf", "options": {"members": {"kind": "anchor"}}}},
            "absent clients count by what is known of the server's own sets alone",
        ),
        ({"recipe": {"name": "fedavg"}, "rounds": {"secure": {}}}, "sums alone"),
    ],
)
def test_what_can_keep_no_ensemble_is_refused_with_the_reason(plant: Plant, changes: dict[str, Any], why: str) -> None:
    data = plant.world.dataset()
    rounds = {"keep_ensemble": True, "max_samples_per_client": 1000, **changes.pop("rounds", {})}
    body = plant.world.body(datasets={"unlabeled": data["id"]}, rounds=rounds, **changes)
    answer = plant.world.op("POST", "/v1/federations", json=body)
    assert refused(answer) == (422, "invalid-field"), answer.text
    assert answer.json()["field"] == "rounds.keep_ensemble"
    assert why in answer.json()["detail"]


def test_what_cannot_be_predicted_is_refused_and_changes_nothing(plant: Plant) -> None:
    world, fed = plant.world, over(plant, "fedsdd")
    url, before = f"/v1/federations/{fed.id}/predict", world.ok("GET", "/v1/jobs?limit=500")
    wide = world.dataset(inputs=np.zeros((4, 3), np.float32))["name"]
    many = world.dataset(labels=np.full(24, 7), inputs=np.zeros((24, 2), np.float32))["name"]
    good = set_of(plant, fed)
    for wish, field in (
        ({"dataset": "nowhere"}, "dataset"),
        ({"dataset": wide}, "dataset"),
        ({"dataset": many}, "dataset"),
        ({"dataset": good, "round": 9}, "round"),
        ({"dataset": good, "round": 9, "ensemble": True}, "round"),
        ({"dataset": good, "prototype": "other"}, "prototype"),
        ({"dataset": good, "prototype": "main", "ensemble": True}, "prototype"),
    ):
        answer = world.op("POST", url, json=wish)
        assert (*refused(answer), answer.json()["field"]) == (422, "invalid-field", field), wish
    assert world.ok("GET", "/v1/jobs?limit=500") == before
    assert world.ok("GET", f"/v1/federations/{fed.id}/predictions")["items"] == []


def test_a_prediction_is_asked_for_once_by_key_by_digest_and_shown_listed_and_logged(plant: Plant) -> None:
    world, fed = plant.world, over(plant, "feddf", rounds={"total": 1})
    data = world.ok("GET", f"/v1/datasets/{set_of(plant, fed)}")
    url, key = f"/v1/federations/{fed.id}/predict", {"Idempotency-Key": "once"}
    first, again = (world.op("POST", url, json={"dataset": data["digest"]}, headers=key) for _ in range(2))
    assert (first.status_code, again.json()) == (202, first.json())
    assert refused(world.op("POST", url, json={"dataset": data["name"]}, headers=key)) == (409, "idempotency-conflict")
    made = first.json()
    assert (made["state"], made["digest"], made["dataset"]) == ("queued", None, data["name"])
    assert refused(world.op("GET", made["url"])) == (404, "not-found")
    plant.runner.drain()
    (listed,) = world.ok("GET", f"/v1/federations/{fed.id}/predictions")["items"]
    assert (listed["id"], listed["state"]) == (made["id"], "done")
    found = world.op("GET", made["url"])
    assert found.headers["etag"] == f'"{listed["digest"]}"'
    events = world.ok("GET", f"/v1/federations/{fed.id}/events?format=json&newest=20")["items"]
    (told,) = [each["data"] for each in events if each["kind"] == "prediction.made"]
    assert (told["prediction_id"], told["accuracy"]) == (made["id"], listed["accuracy"])
    (row,) = world.ok("GET", f"/v1/audit?limit=1&federation={fed.id}&action=federation.predict")["items"]
    assert (row["target"], row["detail"]["dataset"]) == (made["id"], data["digest"])


def test_what_a_prediction_reads_stays_until_it_is_made_and_then_goes(plant: Plant) -> None:
    world, fed = plant.world, over(plant, "fedbe", rounds={"total": 1})
    extra = world.dataset(inputs=np.ones((5, 2), np.float32))
    made = world.ok("POST", f"/v1/federations/{fed.id}/predict", json={"dataset": extra["id"], "ensemble": True})
    reads = digests_of(plant, world.round(fed, 1)["id"]) | {extra["digest"]}
    world.op("DELETE", f"/v1/datasets/{extra['id']}")
    world.ok("PUT", f"/v1/federations/{fed.id}/retention", json={"days": 0})
    assert reads <= stored(plant)
    plant.runner.drain()
    found = world.ok("GET", f"/v1/predictions/{made['id']}")
    assert (found["state"], found["accuracy"]) == ("done", None)
    assert not reads & stored(plant)
    assert found["digest"] not in stored(plant), "the plan keeps nothing of a federation that is over"
    assert refused(world.op("GET", made["url"])) == (410, "removed")


def test_a_prediction_that_fails_is_cancelled_or_tried_again_leaves_its_federation_alone(plant: Plant) -> None:
    world = plant.world
    fed = plant.begin(test=True, rounds={"total": 2}, **RECIPES["feddf"])
    url, before = f"/v1/federations/{fed.id}/predict", world.show(fed)
    made = world.ok("POST", url, json={"dataset": set_of(plant, fed)})
    world.ok("POST", f"/v1/jobs/{made['job_id']}/cancel")
    after = world.show(fed)
    assert (after["state"], after["error"], after["round"]) == ("running", None, before["round"])
    with world.store.read() as session:
        assert session.scalars(select(PredictionInputRow.digest)).all() == []
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    world.ok("POST", f"/v1/jobs/{made['job_id']}/retry")
    plant.runner.drain()
    assert world.ok("GET", f"/v1/predictions/{made['id']}")["state"] == "done", "also when the federation is over"
    assert world.show(fed)["state"] == "cancelled"


def test_a_prediction_whose_worker_is_gone_is_made_by_the_next(plant: Plant) -> None:
    world, fed = plant.world, over(plant, "fedbe", rounds={"total": 1})
    made = world.ok("POST", f"/v1/federations/{fed.id}/predict", json={"dataset": set_of(plant, fed), "ensemble": True})
    job = plant.claim()
    plant.ledger.load(job)
    with world.store.write() as session:
        session.get_one(JobRow, job.id).lease_until = now() - timedelta(seconds=1)
    plant.runner.drain()
    found = world.ok("GET", f"/v1/predictions/{made['id']}")
    assert (found["state"], found["accuracy"]) == ("done", world.round(fed, 1)["metrics"]["ensemble"]["accuracy"])
    with pytest.raises(LostLease):
        plant.ledger.publish(job, JobResult(models={}))


def test_no_more_wait_than_eight_and_the_newest_twenty_stay(plant: Plant) -> None:
    world, fed = plant.world, over(plant, "fedavg", rounds={"total": 1})
    url, wish = f"/v1/federations/{fed.id}/predict", {"dataset": set_of(plant, fed)}
    for _ in range(8):
        world.ok("POST", url, json=wish)
    assert refused(world.op("POST", url, json=wish)) == (409, "limit-reached")
    plant.runner.drain()
    world.ok("PUT", f"/v1/federations/{fed.id}/retention", json={"predictions": 3})
    items = world.ok("GET", f"/v1/federations/{fed.id}/predictions")["items"]
    assert [each["removed_at"] is None for each in items] == [False] * 5 + [True] * 3
    assert items[-1]["digest"] in stored(plant), "all of them are the same bytes, and three are still named"


def test_the_newest_ensemble_is_of_the_newest_round_whatever_the_clocks_of_workers_say(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(("ens_2", "ens_1"))
    monkeypatch.setattr("service.operations.steer.ensembles.new_id", lambda _: next(ids))
    fed = over(plant, "fedavg")
    assert predict(plant, fed, ensemble=True)["round"] == 2


def test_a_client_that_is_forgotten_is_in_no_ensemble_and_a_deleted_federation_leaves_nothing(plant: Plant) -> None:
    world, fed = plant.world, over(plant, "fedgo", rounds={"total": 1})
    round_ = world.round(fed, 1)["id"]
    document = world.ok("GET", f"/v1/rounds/{round_}/ensemble")["document"]
    (theirs,) = [each for each in document["members"] if each["client"] == "b"]
    url, wish = f"/v1/federations/{fed.id}/predict", {"dataset": set_of(plant, fed), "ensemble": True}
    waiting = world.ok("POST", url, json=wish)
    told = world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices['b'].id}?forget=true")
    with world.store.read() as session:
        theirs_too = DiscriminatorRow.client_id == fed.devices["b"].id
        own = session.scalars(select(DiscriminatorRow.size).where(theirs_too)).one()
    assert told["deleted"]["members"] == 1
    assert told["deleted"]["bytes"] == own + theirs["size"], "its update is long gone, and the ensemble still had it"
    gone = {theirs["network"]["digest"], theirs["discriminator"]}
    assert not gone & stored(plant)
    shown = world.ok("GET", f"/v1/rounds/{round_}/ensemble")
    assert (set(shown["removed"]), shown["predicts"]) == (gone, False)
    assert refused(world.op("POST", url, json=wish)) == (410, "removed")
    plant.runner.drain()
    found = world.ok("GET", f"/v1/predictions/{waiting['id']}")
    assert (found["state"], found["error"]) == ("failed", "blob_missing"), found
    assert world.show(fed)["state"] == "finished"
    with world.store.read() as session:
        mine = [each for each in session.scalars(select(DiscriminatorRow)) if each.federation_id == fed.id]
    assert mine
    assert world.op("DELETE", f"/v1/federations/{fed.id}").status_code == 204
    with world.store.read() as session:
        kept = [*session.scalars(select(EnsembleMemberRow)), *session.scalars(select(PredictionRow))]
    assert fed.id not in {row.federation_id for row in kept}
    assert not {each["network"]["digest"] for each in document["members"]} & stored(plant)


def test_an_ensemble_leaves_as_one_file_for_operators_alone(plant: Plant) -> None:
    world, fed = plant.world, over(plant, "fedgo", rounds={"total": 1})
    url = f"/v1/rounds/{world.round(fed, 1)['id']}/ensemble"
    found = world.op("GET", f"{url}/bundle")
    assert int(found.headers["content-length"]) == len(found.content)
    with tarfile.open(fileobj=io.BytesIO(found.content)) as tar:
        names = tar.getnames()
        texts = {name: tar.extractfile(name).read().decode() for name in names[:2]}  # type: ignore[union-attr]
    assert names[:2] == ["README.md", "ensemble.json"]
    document = json.loads(texts["ensemble.json"])
    shown = world.ok("GET", url)["document"]
    assert document == shown
    digests = {each["network"]["digest"] for each in shown["members"]} | {e["discriminator"] for e in shown["members"]}
    assert set(names[2:]) == {f"blobs/{digest}" for digest in digests}
    (row,) = world.ok("GET", "/v1/audit?limit=1&action=ensemble.export")["items"]
    assert row["federation_id"] == fed.id


def test_an_ensemble_of_discriminators_says_the_same_away_from_the_service(plant: Plant, tmp_path: Path) -> None:
    """Each member's discriminator scores the set anew, there as here."""
    world, fed = plant.world, over(plant, "fedgo", rounds={"total": 1})
    file = tmp_path / "ensemble.tar"
    file.write_bytes(world.op("GET", f"/v1/rounds/{world.round(fed, 1)['id']}/ensemble/bundle").content)
    there = predict(plant, fed, ensemble=True)
    wanted = file_of(plant, there)
    row = world.ok("GET", f"/v1/datasets/{set_of(plant, fed)}")
    blob = world.settings.resolved_blob_dir / row["digest"][7:9] / row["digest"][7:]
    with TensorFile(blob) as data:
        inputs, labels = data.read("inputs"), data.read("labels")
    with load_ensemble(file, threads=1) as ensemble:
        here = ensemble.predict(inputs, labels)
        np.testing.assert_array_equal(here.logits, wanted["logits"])
        np.testing.assert_array_equal(here.predicted, wanted["predicted"])
        assert here.accuracy == there["accuracy"]
        others = ensemble.predict(inputs[::-1].copy()[:7])
    page = (Path(__file__).parents[4] / "docs" / "rounds.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```python\n(from potstill.ensembles.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"inputs": inputs}
    exec(block.replace("ensemble.tar", str(file)), names)  # noqa: S102  # our own page
    np.testing.assert_array_equal(names["found"].predicted, wanted["predicted"])
    # A product of other rows may be summed in another order, so what is promised bit for bit is the same examples only.
    np.testing.assert_allclose(others.logits, wanted["logits"][::-1][:7], rtol=1e-5, atol=1e-6)


def test_groups_weighed_by_discriminators_say_why_they_predict_nothing(plant: Plant, tmp_path: Path) -> None:
    stage = DISCRIMINATORS | {"generator": {"kind": "wgan_gp"} | DISCRIMINATORS["generator"]}
    options = {**STEPS, "groups": {"count": 2}, "weigh": {"kind": "odds"}, "discriminators": stage}
    recipe = {"name": "fedsdd", "options": options}
    fed, world = over(plant, "fedsdd", rounds={"total": 1}, recipe=recipe), plant.world
    url = f"/v1/rounds/{world.round(fed, 1)['id']}/ensemble"
    shown = world.ok("GET", url)
    assert not shown["predicts"] and "leave out ensemble" in shown["reason"]
    wish = {"dataset": set_of(plant, fed), "ensemble": True}
    problem = world.op("POST", f"/v1/federations/{fed.id}/predict", json=wish)
    assert refused(problem) == (422, "invalid-field") and "'uniform' or 'samples'" in problem.json()["detail"]
    file = tmp_path / "ensemble.tar"
    file.write_bytes(world.op("GET", f"{url}/bundle").content)
    with pytest.raises(CliError, match="cannot predict: weights 'odds' of a group"):
        load_ensemble(file)
    assert predict(plant, fed)["state"] == "done", "the global model predicts"
