"""Creating, listing, enrolling: idempotency keys, pages, names, join tokens, what is refused and why."""

from concurrent.futures import wait
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from service.persistence.tables import Base
from tests.service.conftest import SettingsMaker
from tests.service.world import World

from ..world import refused


def test_the_same_key_with_the_same_body_gets_the_first_answer(world: World) -> None:
    body, headers = world.body(), {"Idempotency-Key": "k1"}
    first, again = (world.op("POST", "/v1/federations", json=body, headers=headers) for _ in "12")
    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    assert first.json()["join_token"].startswith("pst_join_")
    other = world.op("POST", "/v1/federations", json=world.body(), headers=headers)
    assert refused(other) == (409, "idempotency-conflict")
    assert len(world.ok("GET", "/v1/federations")["items"]) == 1


def test_without_a_key_the_same_name_is_taken(world: World) -> None:
    body = world.body()
    world.ok("POST", "/v1/federations", json=body)
    response = world.op("POST", "/v1/federations", json=body)
    assert (refused(response), response.json()["field"]) == ((409, "name-taken"), "name")


def test_what_became_of_a_request_is_noted_in_its_answer_and_later_on(world: World) -> None:
    body = world.body(recipe={"name": "feddf"}, datasets={"unlabeled": world.dataset()["id"]})
    made = world.ok("POST", "/v1/federations", json=body)
    (note,) = made["notes"]
    assert note["path"] == "recipe.distil.schedule.early_stop"
    assert "datasets.validation" in note["why"]
    assert made["composition"]["distil"]["schedule"]["early_stop"] is None
    assert world.ok("GET", f"/v1/federations/{made['id']}")["notes"] == made["notes"]
    assert world.ok("POST", "/v1/federations", json=world.body())["notes"] == []


def test_a_draft_is_what_creation_makes_and_changes_nothing(world: World) -> None:
    body = world.body(recipe={"name": "feddf"}, datasets={"unlabeled": world.dataset()["id"]}, seed=3)
    before = snapshot(world)
    draft = world.ok("POST", "/v1/federations/draft", json=body)
    assert snapshot(world) == before
    assert [note["path"] for note in draft["notes"]] == ["recipe.distil.schedule.early_stop"]
    made = world.ok("POST", "/v1/federations", json=body)
    assert {name: made[name] for name in draft} == draft
    taken = world.op("POST", "/v1/federations/draft", json=body)
    assert (refused(taken), taken.json()["field"]) == ((409, "name-taken"), "name")
    unfit = world.op("POST", "/v1/federations/draft", json=world.body(recipe={"name": "feddf"}))
    assert (refused(unfit), unfit.json()["field"]) == ((422, "invalid-field"), "recipe.distil.data")


def snapshot(world: World) -> dict[str, list[Any]]:
    with world.store.read() as session:
        return {
            table.name: [tuple(row) for row in session.execute(table.select())]
            for table in Base.metadata.sorted_tables
            if table.name != "tokens"
        }


def test_a_key_belongs_to_its_caller(world: World) -> None:
    other = world.ok("POST", "/v1/tokens", json={"name": "o", "role": "operator"})["token"]
    headers = {"Idempotency-Key": "k"}
    mine = world.op("POST", "/v1/federations", json=world.body(), headers=headers)
    theirs = world.site.request("POST", "/v1/federations", token=other, json=world.body(), headers=headers)
    assert mine.status_code == theirs.status_code == 201
    assert mine.json()["id"] != theirs.json()["id"]


@pytest.mark.parametrize("key", ["", "a\tb", "x" * 201])
def test_keys_that_are_none(shared: World, key: str) -> None:
    response = shared.op("POST", "/v1/federations", json=shared.body(), headers={"Idempotency-Key": key})
    assert refused(response) == (422, "invalid-field")
    assert "Idempotency-Key" in response.json()["field"]


def test_an_enrolment_that_is_sent_twice_makes_one_client(world: World) -> None:
    fed = world.create()
    call = {"token": fed.join_token, "json": {"name": "a", "num_samples": 3}, "headers": {"Idempotency-Key": "e"}}
    url = f"/v1/federations/{fed.id}/clients"
    first, again = (world.site.request("POST", url, **call) for _ in "12")
    assert first.json() == again.json()
    assert first.json()["token"].startswith("pst_dev_")
    assert len(world.ok("GET", url)["items"]) == 1
    call["headers"] = {}
    response = world.site.request("POST", url, **call)
    assert refused(response) == (409, "name-taken")
    assert "revoke" in response.json()["detail"]


@pytest.mark.parametrize("both", ["sqlite", "postgresql"])
def test_of_requests_that_collide_one_wins_and_the_others_are_told(
    make_settings: SettingsMaker, request: pytest.FixtureRequest, both: str
) -> None:
    url = None if both == "sqlite" else request.getfixturevalue("postgres")
    settings = make_settings(database_url=url)
    world = request.getfixturevalue("world_of")(settings)
    try:
        body = world.body()
        begun = [world.site.begin("POST", "/v1/federations", token=world.operator, json=body) for _ in range(8)]
        assert not wait(begun, 30).not_done
        codes = sorted(future.result().status_code for future in begun)
        assert codes[0] == 201
        assert set(codes[1:]) <= {409, 503}, codes
        assert len(world.ok("GET", "/v1/federations")["items"]) == 1
    finally:
        world.close()


def test_a_new_join_token_ends_the_old_one_and_nothing_else(world: World) -> None:
    fed = world.create()
    device, old = world.enrol(fed, "a"), fed.join_token
    fed.join_token = world.ok("POST", f"/v1/federations/{fed.id}/join-token")["join_token"]
    assert fed.join_token != old
    response = world.site.request(
        "POST", f"/v1/federations/{fed.id}/clients", token=old, json={"name": "b", "num_samples": 1}
    )
    assert refused(response) == (401, "unauthorized")
    world.enrol(fed, "b")
    assert world.assignment(device)["client_name"] == "a"


def test_lists_come_in_pages_that_hold_everything_once_and_in_order(world: World) -> None:
    made = [world.create().id for _ in range(7)]
    seen, after = [], ""
    while after is not None:
        page = world.ok("GET", f"/v1/federations?limit=3{'&after=' + after if after else ''}")
        assert 0 < len(page["items"]) <= 3
        seen += [item["id"] for item in page["items"]]
        after = page["next"]
    assert seen == made
    assert world.ok("GET", "/v1/federations?limit=7")["next"] is None
    first = world.ok("GET", "/v1/federations?limit=4&newest_first=true")
    rest = world.ok("GET", f"/v1/federations?limit=4&newest_first=true&after={first['next']}")
    assert [item["id"] for item in first["items"] + rest["items"]] == made[::-1] and rest["next"] is None


def test_rounds_jobs_and_models_begin_with_the_newest_on_demand(world: World) -> None:
    fed = world.running(["a", "b"], rounds={"total": 2})
    for seed in (1, 2):
        for name in fed.devices:
            world.push(fed, name, world.update(fed, seed))
        world.finish(world.claim(), {"main": world.forge.arrays(seed)})
    for path in (f"federations/{fed.id}/rounds?", f"jobs?federation={fed.id}&", f"models?federation={fed.id}&"):
        oldest = [item["id"] for item in world.ok("GET", f"/v1/{path}limit=50")["items"]]
        newest = world.ok("GET", f"/v1/{path}newest_first=true&limit=1")
        older = world.ok("GET", f"/v1/{path}newest_first=true&after={newest['next']}")
        assert len(oldest) > 1
        assert [item["id"] for item in newest["items"] + older["items"]] == oldest[::-1]


@pytest.mark.parametrize("path", ["clients", "rounds"])
def test_the_lists_of_a_federation_come_in_pages_too(world: World, path: str) -> None:
    fed = world.running(["a", "b", "c"])
    page = world.ok("GET", f"/v1/federations/{fed.id}/{path}?limit=1")
    assert len(page["items"]) == 1
    assert (page["next"] is None) == (path == "rounds")
    assert refused(world.op("GET", f"/v1/federations/fed_x/{path}")) == (404, "not-found")


@pytest.mark.parametrize("path", ["federations", "models", "datasets", "jobs", "tokens"])
@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "after=" + "x" * 65])
def test_pages_that_cannot_be(shared: World, path: str, query: str) -> None:
    response = shared.op("GET", f"/v1/{path}?{query}")
    assert refused(response) == (422, "invalid-field")
    assert response.json()["field"] == "query." + query.partition("=")[0]


def test_a_cursor_that_names_nothing_is_only_a_place_in_the_order(shared: World) -> None:
    shared.create()
    assert shared.ok("GET", "/v1/federations?after=zzz") == {"items": [], "next": None}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"name": ""}, "name", "at least 1"),
    ({"name": "a/b"}, "name", "not allowed"),
    ({"name": ".."}, "name", "not allowed"),
    ({"name": "<img src=x>"}, "name", "not allowed"),
    ({"name": "a\x00b"}, "name", "control"),
    ({"name": " a"}, "name", "blank"),
    ({"name": "x" * 101}, "name", "at most 100"),
    ({"colour": "red"}, "colour", "no such field"),
    ({"prototypes": []}, "prototypes", "at least 1"),
    ({"prototypes": [{"architecture": "resnet-9000"}]}, "prototypes.0.architecture", "choose one of"),
    ({"prototypes": [{"architecture": "disc-mlp"}]}, "prototypes.0.architecture", "classifier"),
    ({"prototypes": [{"architecture": "mlp", "options": {"hiden": [3]}}]}, "prototypes.0.options.hiden", "no such"),
    (
        {"prototypes": [{"architecture": "mlp", "options": {"hidden": [0]}}]},
        "prototypes.0.options.hidden.0",
        "greater than or equal to 1",
    ),
    ({"prototypes": [{"architecture": "mlp"}, {"architecture": "mlp"}]}, "prototypes", "name of its own"),
    ({"prototypes": [{"architecture": "custom"}]}, "prototypes.0.initial_model", "imported model"),
    ({"recipe": {"name": "fedmagic"}}, "recipe.name", "choose one of"),
    ({"recipe": {"name": "fedavg", "options": {"link": "x"}}}, "recipe.options.link", "no option"),
    ({"recipe": {"name": "feddf"}}, "recipe.distil.data", "name datasets.unlabeled"),
    ({"datasets": {"test": "nope"}}, "datasets.test", "register it first"),
    ({"datasets": {"unlabeled": "a\x00b"}}, "datasets.unlabeled", "control characters"),
    ({"task": {"num_classes": 1, "input": {"shape": [2]}}}, "task.num_classes", "two at least"),
    ({"task": {"num_classes": 3, "input": {"shape": [0]}}}, "task.input.shape.0", "or equal to 1"),
    ({"task": {"num_classes": 3, "input": {"shape": [10**4] * 2}}}, "task.input", "10,000,000"),
    ({"rounds": {"total": 0}}, "rounds.total", "greater"),
    ({"rounds": {"clients_per_round": 2, "min_updates": 3}}, "rounds", "more than"),
    ({"rounds": {"clients_per_round": 2.5}}, "rounds", "whole number"),
    ({"seed": -1}, "seed", "greater"),
    ({"seed": 2**63}, "seed", "less"),
    ({"local": {"epochs": 0}}, "local.epochs", "greater"),
    ({"local": {"optimizer": {"kind": "adamw"}}}, "local.optimizer", "adamw"),
]


@pytest.mark.parametrize(("change", "field", "said"), BAD, ids=[f"{i}-{b[1]}" for i, b in enumerate(BAD)])
def test_a_federation_that_cannot_be(shared: World, change: dict[str, Any], field: str, said: str) -> None:
    response = shared.op("POST", "/v1/federations", json=shared.body(**change))
    assert refused(response) == (422, "invalid-field"), response.text
    assert response.json()["field"].startswith(field)
    assert said in response.json()["detail"]


def test_data_sets_must_fit_the_task(world: World) -> None:
    other = world.dataset(inputs=np.zeros((4, 3), np.float32))["name"]
    tokens = world.dataset(inputs=np.zeros((4, 2), np.int64))["name"]
    unlabelled = world.dataset()["name"]
    labels = world.dataset(labels=np.array([0, 1, 2, 3, 0]))["name"]
    for role, name, said in (
        ("unlabeled", other, "samples"),
        ("unlabeled", tokens, "int64"),
        ("test", unlabelled, "no labels"),
        ("validation", unlabelled, "no labels"),
        ("test", labels, "has label 3; the task's are 0 to 2"),
    ):
        response = world.op("POST", "/v1/federations", json=world.body(datasets={role: name}))
        assert refused(response) == (422, "invalid-field")
        assert response.json()["field"] == f"datasets.{role}"
        assert said in response.json()["detail"]
    good = world.dataset(labels=np.array([0, 1, 2, 2, 0]))
    made = world.ok("POST", "/v1/federations", json=world.body(datasets={"test": good["name"]}))
    assert made["datasets"]["test"] == good["id"]


def test_students_learn_a_sets_own_labels_only_where_it_has_them(world: World) -> None:
    recipe = {"name": "fedbe", "options": {"data": {"kind": "labeled"}}}
    for labels, said in ((None, "no labels"), (np.array([0, 1, 2, 3, 0]), "the task's are 0 to 2")):
        bare = world.dataset() if labels is None else world.dataset(labels=labels)
        response = world.op(
            "POST", "/v1/federations", json=world.body(recipe=recipe, datasets={"unlabeled": bare["id"]})
        )
        assert refused(response) == (422, "invalid-field")
        assert response.json()["field"] == "datasets.unlabeled"
        assert said in response.json()["detail"]
    assert world.ok("GET", "/v1/federations")["items"] == []
    good = world.dataset(labels=np.array([0, 1, 2, 2, 0]))["id"]
    made = world.ok("POST", "/v1/federations", json=world.body(recipe=recipe, datasets={"unlabeled": good}))
    assert made["datasets"]["unlabeled"] == good


ENROL: list[tuple[dict[str, Any], str]] = [
    ({"num_samples": 0}, "num_samples"),
    ({"num_samples": -1}, "num_samples"),
    ({"num_samples": 2**41}, "num_samples"),
    ({"num_samples": None}, "num_samples"),
    ({"name": "../../x"}, "name"),
    ({"name": "C:\\x"}, "name"),
    ({"name": "/etc/x"}, "name"),
    ({"name": "<img src=x onerror=alert(1)>"}, "name"),
    ({"name": ""}, "name"),
    ({"prototype": "no such"}, "prototype"),
    ({"label_counts": [1, 2]}, "label_counts"),
    ({"label_counts": [3, 3, 3]}, "label_counts"),
    ({"label_counts": [2**40, 0, 0]}, "label_counts"),
    ({"label_counts": [0, 0, 0]}, "label_counts"),
    ({"capabilities": {str(i): 1 for i in range(33)}}, "capabilities"),
]


@pytest.mark.parametrize(("change", "field"), ENROL, ids=[f"{i}-{e[1]}" for i, e in enumerate(ENROL)])
def test_an_enrolment_that_cannot_be(shared: World, change: dict[str, Any], field: str) -> None:
    fed = shared.create()
    body = {"name": "x", "num_samples": 1, **change}
    response = shared.site.request("POST", f"/v1/federations/{fed.id}/clients", token=fed.join_token, json=body)
    assert refused(response) == (422, "invalid-field"), response.text
    assert response.json()["field"] == field
    assert shared.ok("GET", f"/v1/federations/{fed.id}/clients")["items"] == []


def test_nobody_joins_what_is_over(world: World) -> None:
    fed = world.create()
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    response = world.site.request(
        "POST", f"/v1/federations/{fed.id}/clients", token=fed.join_token, json={"name": "x", "num_samples": 1}
    )
    assert refused(response) == (409, "invalid-transition")


def test_revoking_twice_is_no_error_and_an_unknown_client_is(world: World) -> None:
    fed, other = world.create(), world.create()
    device = world.enrol(fed, "a")
    url = f"/v1/federations/{fed.id}/clients/{device.id}"
    for _ in "12":
        assert world.op("DELETE", url).status_code == 204
    assert world.site.request("GET", "/v1/assignment", token=device.token).status_code == 401
    assert refused(world.op("DELETE", f"/v1/federations/{other.id}/clients/{device.id}")) == (404, "not-found")


def test_no_token_is_stored(world: World) -> None:
    fed = world.running(["a"])
    viewer = world.ok("POST", "/v1/tokens", json={"name": "v"}, headers={"Idempotency-Key": "t"})
    again = world.ok("POST", "/v1/tokens", json={"name": "v"}, headers={"Idempotency-Key": "t"})
    assert viewer == again
    secrets = [world.operator, fed.join_token, fed.devices["a"].token, viewer["token"]]
    with world.store.read() as session:
        for table in Base.metadata.sorted_tables:
            stored = str(session.execute(text(f"SELECT * FROM {table.name}")).all())
            for secret in secrets:
                assert secret.partition("_")[2].partition("_")[2] not in stored, table.name
    listed = world.op("GET", "/v1/tokens").text
    assert not any(secret in listed for secret in secrets)


def test_a_token_is_revoked_by_another(world: World) -> None:
    made = world.ok("POST", "/v1/tokens", json={"name": "second", "role": "operator"})
    mine = next(t for t in world.ok("GET", "/v1/tokens")["items"] if t["name"] == "first operator")
    assert refused(world.op("DELETE", f"/v1/tokens/{mine['id']}")) == (409, "in-use")
    assert world.site.request("DELETE", f"/v1/tokens/{mine['id']}", token=made["token"]).status_code == 204
    assert world.op("GET", "/v1/tokens").status_code == 401
    assert refused(world.site.request("DELETE", "/v1/tokens/tok_x", token=made["token"])) == (404, "not-found")
