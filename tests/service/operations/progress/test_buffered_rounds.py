"""Rounds that do not wait: whoever asks trains, updates count while they are young, one device has its share."""

import threading
from typing import Any

import pytest
from sqlalchemy import select

from service.operations.progress import deadlines, jobs
from service.operations.steer import publishing
from service.operations.upkeep import sweep
from service.persistence.tables import ParticipantRow, UpdateRow
from tests.service.conftest import Move
from tests.service.world import Fed, World

from ...world import refused

PLAN: dict[str, Any] = {"mode": "buffered", "buffer": 2, "max_staleness": 2, "total": 9}
Told = dict[str, Any]


def running(world: World, names: str, **plan: Any) -> Fed:
    return world.running(names, rounds=PLAN | plan)


def begin(world: World, fed: Fed, name: str) -> Told:
    """Return what a device is told to train."""
    told = world.assignment(fed.devices[name])
    assert told["action"] == "train", told
    return told


def deliver(world: World, fed: Fed, name: str, told: Told, seed: int = 1) -> Any:
    body = world.forge.pack(world.forge.arrays(seed), {"num_samples": "10", "base_model": told["model"]["id"]})
    return world.push(fed, name, body, url=told["upload_url"])


def give(world: World, fed: Fed, name: str, seed: int = 1) -> Told:
    told = begin(world, fed, name)
    response = deliver(world, fed, name, told, seed)
    assert response.status_code == 201, response.text
    return told


def fuse(world: World, seed: int) -> None:
    world.finish(world.claim(), {"main": world.forge.arrays(seed)})


def rounds(world: World, fed: Fed) -> list[tuple[int, str]]:
    items = world.ok("GET", f"/v1/federations/{fed.id}/rounds")["items"]
    return [(each["index"], each["state"]) for each in items]


def test_whoever_asks_trains_at_once_and_k_updates_make_a_model(world: World) -> None:
    fed = running(world, "abc")
    first = begin(world, fed, "a")
    assert (first["round"]["index"], first["round"]["id"]) == (1, world.round(fed)["id"])
    deliver(world, fed, "a", first)
    assert rounds(world, fed) == [(1, "collecting")]
    give(world, fed, "b", seed=2)
    assert rounds(world, fed) == [(1, "aggregating"), (2, "collecting")]
    fuse(world, 5)
    assert rounds(world, fed) == [(1, "published"), (2, "collecting")]
    shown = world.round(fed)
    assert (shown["buffered"], shown["needed"], shown["asked"], shown["answered"]) == (True, 2, 3, 0)
    assert begin(world, fed, "a")["model"]["id"] == world.round(fed, 1)["models"]["main"]


def test_while_a_buffer_is_fused_devices_go_on_from_the_model_before(world: World) -> None:
    fed = running(world, "abc")
    give(world, fed, "a")
    give(world, fed, "b", seed=2)
    meanwhile = begin(world, fed, "c")
    assert meanwhile["round"]["index"] == 1
    assert deliver(world, fed, "c", meanwhile, seed=3).json()["round"] == 2
    again = begin(world, fed, "a")  # from the model that it has trained already
    assert (again["round"]["id"], again["round"]["turn"]) == (f"{meanwhile['round']['id']}.1", 1)
    assert deliver(world, fed, "a", again, seed=4).json()["round"] == 2
    assert rounds(world, fed) == [(1, "aggregating"), (2, "collecting")]  # full, and its model is not there yet
    fuse(world, 5)
    assert rounds(world, fed) == [(1, "published"), (2, "aggregating"), (3, "collecting")]
    told = {each["name"]: (each["label"], each["staleness"]) for each in world.round(fed, 2)["participants"]}
    assert told == {"a": ("a", 1), "c": ("c", 1)}


def test_an_older_update_counts_until_its_model_is_too_old(world: World) -> None:
    fed = running(world, "abcd", max_staleness=1)
    slow, slower = begin(world, fed, "c"), begin(world, fed, "d")
    for seed in (1, 3):
        give(world, fed, "a", seed)
        give(world, fed, "b", seed + 1)
        if seed == 1:
            fuse(world, 10)
            assert deliver(world, fed, "c", slow, seed=7).json()["round"] == 2  # of age 1, which counts
            give(world, fed, "a", 8)
            fuse(world, 11)
    response = deliver(world, fed, "d", slower, seed=9)
    assert refused(response) == (409, "stale-base-model")
    problem = response.json()
    assert "fetch the newest" in problem["detail"]
    assert (problem["max_staleness"], problem["current_round"]) == (1, world.round(fed)["index"])
    assert problem["staleness"] > 1
    assert deliver(world, fed, "c", slow, seed=7).status_code == 200  # what has counted is answered again
    beat = world.site.request(
        "POST", f"/v1/rounds/{slower['round']['id']}/heartbeat", token=fed.devices["d"].token, json={}
    )
    assert refused(beat) == (409, "stale-base-model")


def test_a_fast_device_has_its_share_and_waits(world: World) -> None:
    fed = running(world, "abc", buffer=3, per_client=2)
    give(world, fed, "a")
    second = begin(world, fed, "a")
    assert second["round"]["turn"] == 1
    assert deliver(world, fed, "a", second, seed=2).status_code == 201
    waits = world.assignment(fed.devices["a"])
    assert (waits["action"], "takes no more of one client" in waits["reason"]) == ("wait", True)
    third = second["upload_url"].replace(".1/", ".2/")
    assert refused(deliver(world, fed, "a", second | {"upload_url": third}, seed=3)) == (409, "already-delivered")
    far = second["upload_url"].replace(".1/", ".7/")
    assert refused(deliver(world, fed, "a", second | {"upload_url": far}, seed=3)) == (404, "not-found")
    told = [(each["name"], each["label"]) for each in world.round(fed)["participants"]]
    assert told == [("a", "a"), ("a", "a/02")]
    give(world, fed, "b", seed=4)
    assert rounds(world, fed) == [(1, "aggregating"), (2, "collecting")]


def test_the_same_bytes_are_one_update_and_others_are_refused(world: World) -> None:
    fed = running(world, "abc")
    told = begin(world, fed, "a")
    assert [deliver(world, fed, "a", told).status_code for _ in range(2)] == [201, 200]
    assert refused(deliver(world, fed, "a", told, seed=2)) == (409, "already-delivered")
    assert world.updates() == 1


def test_the_same_update_by_many_connections_counts_once(world: World) -> None:
    fed = running(world, "abc")
    told, found = begin(world, fed, "a"), list[int]()
    threads = [
        threading.Thread(target=lambda: found.append(deliver(world, fed, "a", told).status_code)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [200, 200, 200, 201]
    assert world.updates() == 1


def test_nobody_delivers_what_it_was_not_told_to_do(world: World) -> None:
    fed = running(world, "ab")
    told = begin(world, fed, "a")
    assert refused(deliver(world, fed, "b", told)) == (409, "not-selected")


def test_a_fleet_smaller_than_the_buffer_closes_it_when_all_have_given(world: World) -> None:
    fed = running(world, "ab", buffer=5)
    give(world, fed, "a")
    give(world, fed, "b", seed=2)
    assert rounds(world, fed)[0] == (1, "aggregating")


def test_a_buffer_is_fused_at_its_deadline_with_what_is_here(world: World, move: Move) -> None:
    fed = running(world, "abc", deadline_seconds=30, buffer=3)
    give(world, fed, "a")
    move(31)
    sweep.sweep(world.store)
    assert rounds(world, fed) == [(1, "aggregating"), (2, "collecting")]
    fuse(world, 3)
    move(200)
    sweep.sweep(world.store)
    assert rounds(world, fed)[1:] == [(2, "skipped"), (3, "collecting")]
    assert begin(world, fed, "b")["round"]["index"] == 3


def test_a_lost_device_is_not_counted_on(world: World, move: Move) -> None:
    fed = running(world, "abc", buffer=3)
    lost = begin(world, fed, "c")
    url, token = f"/v1/rounds/{lost['round']['id']}/heartbeat", fed.devices["c"].token
    assert world.site.request("POST", url, token=token, json={"step": 1}).status_code == 200
    give(world, fed, "a")
    give(world, fed, "b", seed=2)
    assert rounds(world, fed) == [(1, "collecting")]
    move(1000)
    with world.store.read() as session:
        assert deadlines.due(session) == [fed.id]
    sweep.sweep(world.store)
    assert rounds(world, fed) == [(1, "aggregating"), (2, "collecting")]
    with world.store.read() as session:
        assert deadlines.due(session) == []
    fuse(world, 3)
    assert deliver(world, fed, "c", lost, seed=3).json()["round"] == 2  # it comes back, and counts
    with world.store.read() as session:
        row = session.get_one(ParticipantRow, (lost["round"]["id"], fed.devices["c"].id))
        assert (row.silent_at, row.lost_at) == (None, None)


def test_models_stay_while_somebody_may_deliver_from_them(world: World) -> None:
    """Of six models the first ones go, as retention says; those within two versions stay, and what is buffered."""
    fed = world.create(rounds=PLAN | {"min_clients": 3}, retention={"models": 1, "updates": 0})
    for name in "abc":
        world.enrol(fed, name)
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    world.finish(world.claim(), {"main": world.forge.arrays()})
    bases = []
    for seed in (10, 20, 30, 40, 50):
        bases.append(begin(world, fed, "a")["model"]["id"])
        if seed == 50:
            held = begin(world, fed, "c")
        give(world, fed, "a", seed)
        give(world, fed, "b", seed + 1)
        fuse(world, seed + 2)
    removed = [world.ok("GET", f"/v1/models/{id_}")["removed_at"] is not None for id_ in bases]
    assert removed == [True, True, True, False, False]
    assert deliver(world, fed, "c", held, seed=9).status_code == 201
    assert world.ok("GET", f"/v1/models/{bases[-1]}")["removed_at"] is None


def test_a_failed_buffer_is_retried_while_the_next_one_fills(world: World) -> None:
    fed = running(world, "abc")
    give(world, fed, "a")
    give(world, fed, "b", seed=2)
    job = world.claim()
    with world.store.write() as session:
        publishing.give_up(session, jobs.get(session, job.id), "non_finite", "no")
    assert world.show(fed)["state"] == "paused"
    world.ok("POST", f"/v1/jobs/{job.id}/retry", json={"exclude": ["b"], "force": True})
    fuse(world, 5)
    assert rounds(world, fed) == [(1, "published"), (2, "collecting")]
    assert {each["name"]: each["state"] for each in world.round(fed, 1)["participants"]} == {
        "a": "answered",
        "b": "excluded",
    }


def test_the_last_round_is_the_end(world: World) -> None:
    fed = running(world, "abc", total=1)
    slow = begin(world, fed, "c")
    give(world, fed, "a")
    give(world, fed, "b", seed=2)
    assert refused(deliver(world, fed, "c", slow, seed=3)) == (409, "round-closed")
    fuse(world, 5)
    assert (world.show(fed)["state"], rounds(world, fed)) == ("finished", [(1, "published")])
    assert world.assignment(fed.devices["a"])["action"] == "done"


def test_a_rollback_begins_the_buffer_again(world: World) -> None:
    fed = running(world, "abc")
    give(world, fed, "a")
    give(world, fed, "b", seed=2)
    fuse(world, 5)
    old = begin(world, fed, "c")
    give(world, fed, "a", seed=3)
    world.ok("POST", f"/v1/federations/{fed.id}/rollback", json={"round": 0})
    assert refused(deliver(world, fed, "c", old, seed=4)) == (409, "stale-base-model")
    assert (world.round(fed)["restarts"], world.round(fed)["answered"]) == (1, 0)
    give(world, fed, "a", seed=5)
    give(world, fed, "c", seed=6)
    assert rounds(world, fed)[1] == (2, "aggregating")


def test_what_began_before_a_rollback_is_refused(world: World) -> None:
    fed = running(world, "abc")
    slow = begin(world, fed, "c")
    give(world, fed, "a")
    give(world, fed, "b", seed=2)
    fuse(world, 5)
    world.ok("POST", f"/v1/federations/{fed.id}/rollback", json={"round": 0})
    response = deliver(world, fed, "c", slow, seed=4)
    assert (refused(response), "turned back" in response.text) == ((409, "stale-base-model"), True)


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({"buffer": 3, "mode": "synchronous"}, "rounds.buffer"),
        ({"clients_per_round": 2}, "rounds.clients_per_round"),
        ({"over_selection": 2.0}, "rounds.over_selection"),
        ({"replace_lost": True}, "rounds.replace_lost"),
        ({"late": "grace"}, "rounds.late"),
        ({"secure": {}}, "rounds.secure"),
        ({"evaluate": {}, "gate": {"metric": "devices"}}, "rounds.gate.metric"),
        ({"min_updates": 3}, "rounds.min_updates"),
        ({"per_client": 3}, "rounds.per_client"),
        ({"buffer": 0}, "rounds.buffer"),
        ({"max_staleness": 1001}, "rounds.max_staleness"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(shared: World, plan: dict[str, Any], field: str) -> None:
    base = {"mode": "buffered", "buffer": 2, "total": 3}
    if plan.get("mode") == "synchronous":
        base.pop("buffer")
    response = shared.op("POST", "/v1/federations", json=shared.body(rounds=base | plan))
    assert (response.status_code, response.json()["field"]) == (422, field)


def test_creation_notes_what_it_took_by_default(shared: World) -> None:
    made = shared.ok("POST", "/v1/federations", json=shared.body(rounds={"mode": "buffered", "buffer": 4}))
    noted = {note["path"]: note["note"] for note in made["notes"]}
    assert noted.keys() == {"rounds.max_staleness", "rounds.per_client", "rounds.staleness"}
    assert noted["rounds.max_staleness"] == "10"


def test_the_next_buffer_has_a_changed_plan_and_the_mode_stays(world: World) -> None:
    fed = running(world, "abc")
    url = f"/v1/federations/{fed.id}/plan"
    assert refused(world.op("PATCH", url, json={"rounds": {"mode": "synchronous"}})) == (422, "invalid-field")
    changed = {"buffer": 1, "max_staleness": 5, "staleness": {"kind": "constant"}}
    world.ok("PATCH", url, json={"rounds": changed})
    assert world.round(fed)["needed"] == 2
    give(world, fed, "a")
    give(world, fed, "b", seed=2)
    assert world.round(fed)["needed"] == 1
    world.ok("PATCH", url, json={"rounds": {"buffer": None}})
    assert world.show(fed)["rounds"].get("buffer") is None


def test_updates_are_rows_of_their_own(world: World) -> None:
    fed = running(world, "abc", buffer=3, per_client=2)
    give(world, fed, "a")
    give(world, fed, "a", seed=2)
    with world.store.read() as session:
        rows = session.execute(select(UpdateRow.turn, UpdateRow.begun_in, UpdateRow.round_id)).all()
    here = world.round(fed)["id"]
    assert sorted(tuple(row) for row in rows) == [(0, here, here), (1, here, here)]
