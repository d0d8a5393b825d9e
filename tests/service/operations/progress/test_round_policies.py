"""Rounds that cannot hang: deadline policies, heartbeats, lost devices and their substitutes, grace, skipped rounds."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from service.domain.selection import ranking
from service.operations.fleet import clients
from service.operations.fleet import updates as deliveries
from service.operations.ledger import clock
from service.operations.progress import deadlines, jobs, lifecycle, participants
from service.operations.steer import fusion
from service.operations.upkeep import sweep
from service.persistence.tables import EventRow, JobRow, RoundRow
from tests.service.conftest import Move
from tests.service.world import Fed, World

from ...world import refused

READERS = (clients, jobs, sweep, deadlines, lifecycle, fusion, deliveries, participants)


@pytest.fixture
def move(monkeypatch: pytest.MonkeyPatch) -> Move:
    """Stop the clock; the function sets it to so many seconds after the test's begin."""
    begin = clock.now()

    def forward(seconds: float) -> None:
        for module in READERS:
            monkeypatch.setattr(module, "now", lambda: begin + timedelta(seconds=seconds))

    forward(0)
    return forward


def sweep_now(world: World) -> None:
    sweep.sweep(world.store)


def beat(world: World, fed: Fed, name: str, **progress: int) -> Any:
    url = f"/v1/rounds/{world.round(fed)['id']}/heartbeat"
    return world.site.request("POST", url, token=fed.devices[name].token, json=progress)


def states(world: World, fed: Fed, index: int = 0) -> dict[str, str]:
    return {person["name"]: person["state"] for person in world.round(fed, index)["participants"]}


# ------------------------------------------------------------------------------------------------------- the deadline
def test_too_few_at_the_deadline_is_a_reason_everywhere(world: World, move: Move) -> None:
    fed = world.running("abc", rounds={"min_updates": 3, "deadline_seconds": 30, "on_deadline": "fail"})
    for seed, name in enumerate("ab"):
        world.push(fed, name, world.update(fed, seed=seed))
    move(31)
    sweep_now(world)
    round_, shown = world.round(fed), world.show(fed)
    assert (round_["state"], round_["reason"]) == ("failed", "too_few_updates: got 2 of 3 updates by the deadline")
    assert (shown["state"], shown["error"]) == ("paused", "too_few_updates")
    assert "got 2 of 3 updates" in shown["detail"]
    url = f"/v1/rounds/{round_['id']}/close"
    assert refused(world.op("POST", url)) == (409, "too-few-updates")
    assert world.ok("POST", url + "?force=true")["state"] == "aggregating"  # the updates were kept
    world.finish(world.claim(), {"main": world.forge.arrays(5)}, {"weights": {"a": 0.5, "b": 0.5}})
    assert (world.round(fed, 1)["state"], world.show(fed)["state"]) == ("published", "running")
    assert world.show(fed)["detail"] is None


def test_a_failed_deadline_can_be_given_up(world: World, move: Move) -> None:
    fed = world.running("ab", rounds={"min_updates": 2, "deadline_seconds": 30, "on_deadline": "fail"})
    digest = world.push(fed, "a").json()["digest"]
    move(31)
    sweep_now(world)
    assert world.blobs.cache.path(digest).exists()
    base = world.round(fed)["base_models"]
    world.ok("POST", f"/v1/federations/{fed.id}/resume")
    assert not world.blobs.cache.path(digest).exists()
    assert (world.show(fed)["round"], world.round(fed, 2)["base_models"]) == (2, base)
    url = f"/v1/rounds/{world.round(fed, 1)['id']}/close?force=true"
    assert refused(world.op("POST", url)) == (409, "invalid-transition")


def test_a_deadline_is_extended_so_often_and_late_updates_then_count(world: World, move: Move) -> None:
    plan = {"min_updates": 2, "deadline_seconds": 30, "on_deadline": "extend", "max_extensions": 1}
    fed = world.running("ab", rounds=plan)
    world.push(fed, "a")
    move(31)
    sweep_now(world)
    round_ = world.round(fed)
    assert (round_["state"], round_["extensions"]) == ("collecting", 1)
    assert round_["reason"] == "got 1 of 2 updates by the deadline; extended 1 of 1"
    assert "got 1 of 2" in world.show(fed)["detail"]
    move(50)
    assert world.push(fed, "b", world.update(fed, seed=2)).status_code == 201
    assert (world.round(fed)["state"], world.round(fed)["reason"]) == ("aggregating", None)


def test_after_its_last_extension_a_round_is_skipped(world: World, move: Move) -> None:
    plan = {"min_updates": 2, "deadline_seconds": 30, "on_deadline": "extend", "max_extensions": 1}
    fed = world.running("ab", rounds=plan)
    for seconds in (31, 62):
        move(seconds)
        sweep_now(world)
    assert (world.round(fed, 1)["state"], world.show(fed)["round"]) == ("skipped", 2)


def test_after_so_many_skipped_rounds_in_a_row_the_federation_waits_for_people(world: World, move: Move) -> None:
    fed = world.running("ab", rounds={"total": 9, "min_updates": 2, "deadline_seconds": 30, "max_skipped": 2})
    for seconds in (31, 62):
        move(seconds)
        sweep_now(world)
    shown = world.show(fed)
    assert (shown["state"], shown["round"], shown["error"]) == ("paused", 2, "rounds_skipped")
    assert "2 rounds in a row were skipped" in shown["detail"]
    assert "got 0 of 2 updates by the deadline" in shown["detail"]
    assert world.ok("POST", f"/v1/federations/{fed.id}/resume")["round"] == 3
    assert world.show(fed)["state"] == "running"
    move(93)
    sweep_now(world)
    assert (world.show(fed)["state"], world.show(fed)["round"]) == ("running", 4)  # counted from one again


def test_a_published_round_begins_the_count_again(world: World, move: Move) -> None:
    fed = world.running("ab", rounds={"total": 9, "min_updates": 2, "deadline_seconds": 30, "max_skipped": 2})
    move(31)
    sweep_now(world)
    for seed, name in enumerate("ab"):
        world.push(fed, name, world.update(fed, seed=seed))
    world.finish(world.claim(), {"main": world.forge.arrays(5)})
    move(62)
    sweep_now(world)
    assert (world.round(fed, 3)["state"], world.show(fed)["state"]) == ("skipped", "running")


def test_a_federation_that_cannot_open_a_round_says_what_it_waits_for(world: World) -> None:
    fed = world.create(rounds={"min_clients": 2})
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    world.finish(world.claim(), {"main": world.forge.arrays()})
    world.enrol(fed, "a")
    assert world.show(fed)["waiting_for"] == "clients: a round opens with 2, and 1 is ready"
    world.enrol(fed, "b")
    assert world.show(fed)["waiting_for"] is None


# ------------------------------------------------------------------------------------------------------- heartbeats
def test_a_participants_way_from_asked_to_answered(world: World, move: Move) -> None:
    fed = world.running("ab")
    assert states(world, fed) == {"a": "asked", "b": "asked"}
    assert world.assignment(fed.devices["a"])["round"]["heartbeat_seconds"] == 30
    assert states(world, fed)["a"] == "fetched"
    move(5)
    answer = beat(world, fed, "a", epoch=1, step=20, of=60)
    assert (answer.status_code, answer.json()["state"], answer.json()["answered"]) == (200, "collecting", False)
    person = world.round(fed)["participants"][0]
    assert (person["state"], person["progress"]) == ("training", {"epoch": 1, "step": 20, "of": 60})
    assert person["fetched_at"] < person["heard_at"]
    move(6)
    assert beat(world, fed, "a", epoch=2).status_code == 200
    assert world.round(fed)["participants"][0]["progress"]["epoch"] == 1  # too soon to be worth a write
    move(30)
    beat(world, fed, "a", epoch=3)
    assert world.round(fed)["participants"][0]["progress"] == {"epoch": 3}
    body = world.update(fed)
    world.push(fed, "a", body)
    person, round_ = world.round(fed)["participants"][0], world.round(fed)
    assert (person["state"], person["size"], person["num_samples"]) == ("answered", len(body), 10)
    assert 29 < person["seconds"] < 32
    assert (round_["size"], round_["answered"], round_["lost"]) == (len(body), 1, 0)
    assert beat(world, fed, "a").json()["answered"] is True


def test_heartbeats_that_are_refused(world: World, move: Move) -> None:
    fed = world.running("ab", rounds={"clients_per_round": 1, "min_clients": 2, "deadline_seconds": 30})
    asked = world.round(fed)["participants"][0]["name"]
    other = "b" if asked == "a" else "a"
    assert refused(beat(world, fed, other)) == (409, "not-selected")
    assert refused(beat(world, fed, asked, step=-1)) == (422, "invalid-field")
    assert refused(beat(world, fed, asked, hours=1)) == (422, "invalid-field")
    response = world.site.request("POST", "/v1/rounds/rnd_x/heartbeat", token=fed.devices[asked].token, json={})
    assert refused(response) == (404, "not-found")
    stranger = world.running("c")
    url = f"/v1/rounds/{world.round(fed)['id']}/heartbeat"
    response = world.site.request("POST", url, token=stranger.devices["c"].token, json={})
    assert refused(response) == (403, "forbidden")
    move(31)
    response = beat(world, fed, asked)
    assert refused(response) == (409, "round-closed")
    assert response.json()["current_round"] == 1


def test_a_round_does_not_wait_for_devices_that_fell_silent(world: World, move: Move) -> None:
    fed = world.running("abcd", rounds={"min_updates": 2, "heartbeat_seconds": 10, "lost_after": 3})
    for seed, name in enumerate("ab"):
        world.push(fed, name, world.update(fed, seed=seed))
    beat(world, fed, "c")
    move(20)
    beat(world, fed, "d")
    move(31)
    sweep_now(world)
    assert states(world, fed) == {"a": "answered", "b": "answered", "c": "lost", "d": "training"}
    assert (world.round(fed)["state"], world.round(fed)["lost"]) == ("collecting", 1)
    beat(world, fed, "c")  # back again
    assert states(world, fed)["c"] == "training"
    move(62)
    sweep_now(world)
    assert (world.round(fed)["state"], world.round(fed)["lost"]) == ("aggregating", 2)
    assert refused(world.push(fed, "c", world.update(fed, seed=3))) == (409, "round-closed")


def test_a_device_that_sends_no_heartbeats_is_waited_for(world: World, move: Move) -> None:
    fed = world.running("ab", rounds={"heartbeat_seconds": 10, "lost_after": 3, "deadline_seconds": 500})
    world.assignment(fed.devices["b"])
    world.push(fed, "a")
    move(400)
    sweep_now(world)
    assert (world.round(fed)["state"], states(world, fed)["b"]) == ("collecting", "fetched")


def fetch(world: World, fed: Fed, name: str) -> None:
    """Ask as the SDK does, which beats as soon as it is told to train."""
    answer = world.site.request("GET", "/v1/assignment?heartbeats=true", token=fed.devices[name].token)
    assert answer.json()["action"] == "train"


def test_a_device_that_dies_before_its_first_heartbeat_is_lost(world: World, move: Move) -> None:
    plan = {"min_updates": 2, "heartbeat_seconds": 10, "lost_after": 3, "deadline_seconds": 500}
    fed = world.running("abcd", rounds=plan)
    fetch(world, fed, "c")
    world.assignment(fed.devices["d"])  # does not say that it will beat: it is waited for
    world.push(fed, "a", world.update(fed, seed=1))
    move(29)
    sweep_now(world)
    assert states(world, fed) == {"a": "answered", "b": "asked", "c": "fetched", "d": "fetched"}
    move(31)
    sweep_now(world)
    assert states(world, fed)["c"] == "lost" and states(world, fed)["d"] == "fetched"
    fetch(world, fed, "c")  # its next start
    assert states(world, fed)["c"] == "fetched"
    move(60)
    sweep_now(world)
    assert states(world, fed)["c"] == "fetched"
    assert beat(world, fed, "c").status_code == 200
    assert states(world, fed)["c"] == "training"


def test_a_device_that_beats_and_does_not_move_is_lost(world: World, move: Move) -> None:
    """At one pass for more than 600 s, or 20 times its longest: `b` with passes of 50 s may stay for 1000 s."""
    fed = world.running("abcd", rounds={"min_updates": 2, "heartbeat_seconds": 300, "deadline_seconds": 9000})
    at_one = {"epoch": 0, "step": 0, "passes": 1}
    seen: dict[int, dict[str, str]] = {}
    for moment in range(0, 1201, 300):
        move(moment)
        beat(world, fed, "a", **at_one, pass_seconds=1)
        beat(world, fed, "b", **at_one, pass_seconds=50)
        beat(world, fed, "c", **at_one | {"passes": 1 + moment})
        beat(world, fed, "d", epoch=0, step=0)  # counts no passes: it may do something else
        sweep_now(world)
        seen[moment] = states(world, fed)
    alive = dict.fromkeys("abcd", "training")
    assert seen[300] == alive
    assert seen[600] == seen[900] == alive | {"a": "lost"}
    assert seen[1200] == alive | {"a": "lost", "b": "lost"}
    with world.store.read() as session:
        lost = select(EventRow.data).where(EventRow.kind == "client.lost").order_by(EventRow.sequence)
        assert [data["client_id"] for data in session.scalars(lost)] == [fed.devices[name].id for name in "ab"]
    person = next(person for person in world.round(fed)["participants"] if person["name"] == "a")
    assert person["moved_at"] < person["heard_at"]
    beat(world, fed, "a", **at_one | {"passes": 2})
    assert states(world, fed)["a"] == "training", "it moves again"


def test_lost_devices_do_not_end_a_round_that_would_be_too_small(world: World, move: Move) -> None:
    plan = {"min_updates": 2, "heartbeat_seconds": 10, "lost_after": 3, "deadline_seconds": 100}
    fed = world.running("ab", rounds=plan)
    world.push(fed, "a")
    beat(world, fed, "b")
    move(40)
    sweep_now(world)
    assert (world.round(fed)["state"], states(world, fed)["b"]) == ("collecting", "lost")
    assert world.push(fed, "b", world.update(fed, seed=2)).status_code == 201
    assert (world.round(fed)["state"], states(world, fed)["b"]) == ("aggregating", "answered")


def test_the_next_of_the_ranking_takes_a_lost_devices_place(world: World, move: Move) -> None:
    plan = {"clients_per_round": 2, "min_updates": 2, "min_clients": 4, "replace_lost": True, "heartbeat_seconds": 10}
    fed = world.running("abcd", rounds=plan)
    order = ranking(0, 1, dict.fromkeys("abcd", 10))
    assert set(states(world, fed)) == set(order[:2])
    beat(world, fed, order[0])
    move(41)
    sweep_now(world)
    sweep_now(world)  # a second sweep asks nobody else
    assert set(states(world, fed)) == set(order[:3])
    people = {person["name"]: person for person in world.round(fed)["participants"]}
    assert people[order[2]]["replaces"] == fed.devices[order[0]].id
    assert world.assignment(fed.devices[order[2]])["action"] == "train"
    for seed, name in enumerate(order[1:3]):
        assert world.push(fed, name, world.update(fed, seed=seed)).status_code == 201
    assert world.round(fed)["state"] == "aggregating"


# -------------------------------------------------------------------------------------------------------------- late
def test_late_updates_are_refused_with_the_current_round(world: World, move: Move) -> None:
    fed = world.running("ab", rounds={"total": 9, "min_updates": 2, "deadline_seconds": 30})
    old, body = f"/v1/rounds/{world.round(fed)['id']}/update", world.update(fed)
    move(31)
    response = world.push(fed, "a", body, url=old)
    assert refused(response) == (409, "round-closed")
    assert (response.json()["round"], response.json()["current_round"]) == (1, 1)
    sweep_now(world)
    response = world.push(fed, "a", body, url=old)
    assert (response.json()["current_round"], response.json()["current_round_id"]) == (2, world.round(fed)["id"])
    assert world.updates() == 0


def test_grace_for_those_that_train(world: World, move: Move) -> None:
    plan = {"min_updates": 1, "deadline_seconds": 30, "late": "grace", "grace_seconds": 20}
    fed = world.running("abc", rounds=plan)
    world.push(fed, "a")
    beat(world, fed, "b", epoch=1)
    move(35)
    sweep_now(world)
    assert world.round(fed)["state"] == "collecting"
    assert world.assignment(fed.devices["b"])["action"] == "train"  # it may have been started anew
    assert world.assignment(fed.devices["c"])["action"] == "wait"
    assert refused(world.push(fed, "c", world.update(fed, seed=3))) == (409, "round-closed")
    assert world.push(fed, "b", world.update(fed, seed=2)).status_code == 201
    sweep_now(world)
    assert (world.round(fed)["state"], world.round(fed)["answered"]) == ("aggregating", 2)


def test_the_grace_ends(world: World, move: Move) -> None:
    fed = world.running("ab", rounds={"deadline_seconds": 30, "late": "grace", "grace_seconds": 20})
    world.push(fed, "a")
    beat(world, fed, "b")
    move(51)
    assert refused(world.push(fed, "b", world.update(fed, seed=2))) == (409, "round-closed")
    sweep_now(world)
    assert (world.round(fed)["state"], world.round(fed)["answered"]) == ("aggregating", 1)


# ------------------------------------------------------------------------------------------------------- many sweepers
def test_replicas_that_sweep_at_once_do_nothing_twice(anywhere: World, move: Move) -> None:
    world = anywhere
    plan = {"clients_per_round": 2, "min_clients": 4, "replace_lost": True, "heartbeat_seconds": 10}
    plan |= {"deadline_seconds": 60, "total": 9, "min_updates": 2}
    feds = [world.running("abcd", rounds=plan) for _ in range(3)]
    for fed in feds:
        beat(world, fed, next(iter(states(world, fed))))
    with ThreadPoolExecutor(4) as pool:
        move(41)
        list(pool.map(lambda _: sweep_now(world), range(8)))
        for fed in feds:
            assert sorted(states(world, fed).values()) == ["asked", "asked", "lost"]
        move(61)  # nobody has answered: one skip, one next round
        list(pool.map(lambda _: sweep_now(world), range(8)))
        for fed in feds:
            items = world.ok("GET", f"/v1/federations/{fed.id}/rounds")["items"]
            assert [item["state"] for item in items] == ["skipped", "collecting"]
            for seed, name in enumerate(states(world, fed)):
                world.push(fed, name, world.update(fed, seed=seed))
        list(pool.map(lambda _: sweep_now(world), range(8)))
    with world.store.read() as session:
        rounds = session.scalar(select(func.count()).select_from(RoundRow).where(RoundRow.state == "aggregating"))
        queued = session.scalar(select(func.count()).select_from(JobRow).where(JobRow.kind == "round"))
    assert (rounds, queued) == (3, 3)
