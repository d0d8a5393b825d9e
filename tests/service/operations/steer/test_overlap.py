"""FedSDD's overlap (App. A.6): groups that start a round while the main model of the one before is distilled."""

from sqlalchemy import select

from service.persistence.tables import JobRow
from tests.service.conftest import Move
from tests.service.world import World

from ...world import refused
from .overlapping import NAMES, ahead, answer, end, everybody, groups_of, hand_over, start, states, sweep_now


# -------------------------------------------------------------------------------------------------------- two rounds
def test_the_other_group_trains_while_the_main_model_is_distilled(world: World) -> None:
    fed, job = ahead(world)
    first, second = world.round(fed, 1), world.round(fed, 2)
    assert [first["state"], second["state"]] == ["aggregating", "collecting"]
    assert (first["published_at"], second["waits_for"]) == (None, first["id"])
    assert first["groups_published_at"] <= second["opened_at"]
    assert list(first["models"]) == ["main~1"]
    assert second["base_models"] == first["models"]
    told = world.ok("GET", f"/v1/federations/{fed.id}/events?format=json&after=0&limit=200")["items"]
    kinds = [
        (each["kind"], each["data"].get("round")) for each in told if each["kind"].startswith(("round.", "model."))
    ]
    assert kinds[-4:] == [
        ("round.closed", 1), ("model.published", 1), ("round.groups_published", 1), ("round.opened", 2),
    ]  # fmt: skip
    shown = world.show(fed)
    assert (shown["round"], shown["current_round"]) == (2, second["id"])
    assert shown["models"]["main~1"]["id"] == first["models"]["main~1"]
    assert shown["models"]["main"]["id"] == first["base_models"]["main"]
    groups = groups_of(world, fed)
    for name in groups["main"]:
        told = world.assignment(fed.devices[name])
        assert (told["action"], told["reason"]) == (
            "wait", "this client trains 'main' next, which round 1 still makes",
        )  # fmt: skip
    for name in groups["main~1"]:
        assert world.assignment(fed.devices[name])["round"]["index"] == 2
        answer(world, fed, name)
    assert states(world, fed) == ["aggregating", "collecting"]

    end(world, job, {"main": 50, "main~1": 51}, accuracy=0.5, model={"prototypes": {"main": 0.5, "main~1": 0.4}})
    first, second = world.round(fed, 1), world.round(fed, 2)
    assert (first["state"], second["state"], second["waits_for"]) == ("published", "collecting", None)
    assert second["base_models"] == first["models"]
    assert second["base_models"].keys() == {"main", "main~1"}
    for name, accuracy in (("main", 0.5), ("main~1", 0.4)):
        model = world.ok("GET", f"/v1/models/{first['models'][name]}")
        assert (model["current"], model["round"], model["metrics"]) == (True, 1, {"accuracy": accuracy})
        assert model["recipe"]["name"] == "fedsdd"
        assert len(model["parents"]) == 1 + len(NAMES)
    for name in groups["main"]:
        answer(world, fed, name)
    assert states(world, fed) == ["published", "aggregating"]


def test_everybody_is_drawn_once_as_in_order(world: World) -> None:
    """Membership of round 2 is what it would have been, and does not change when the main model comes."""
    fed, job = ahead(world)
    before = groups_of(world, fed)
    end(world, job, {"main": 50, "main~1": 51})
    assert groups_of(world, fed) == before
    plain = start(world, groups={"overlap": False})
    everybody(world, plain)
    end(world, world.claim(), {"main": 50, "main~1": 51})
    assert groups_of(world, plain, 2) == before


def test_to_the_end(world: World) -> None:
    fed = start(world)
    for index in (1, 2, 3):
        everybody(world, fed) if index == 1 else [answer(world, fed, name) for name in groups_of(world, fed)["main"]]
        job = world.claim()
        hand_over(world, job, {"main~1": 50 + index})
        assert len(states(world, fed)) == min(index + 1, 3)
        if index < 3:
            for name in groups_of(world, fed)["main~1"]:
                answer(world, fed, name, 60 + index)
        end(world, job, {"main": 70 + index, "main~1": 50 + index})
    assert states(world, fed) == ["published"] * 3
    assert (world.show(fed)["state"], world.show(fed)["round"]) == ("finished", 3)
    made = [m for m in world.ok("GET", f"/v1/models?federation={fed.id}&limit=100")["items"] if m["role"] == "global"]
    assert sorted((m["round"], m["prototype"]) for m in made) == [(i, n) for i in (1, 2, 3) for n in ("main", "main~1")]
    assert [m["prototype"] for m in made if m["current"]] == ["main~1", "main"]


def test_without_the_option_rounds_run_in_order(world: World) -> None:
    fed = start(world, groups={"overlap": False})
    assert world.show(fed)["composition"]["groups"]["overlap"] is False
    everybody(world, fed)
    end(world, world.claim(), {"main": 50, "main~1": 51})
    first, second = world.round(fed, 1), world.round(fed, 2)
    assert (first["groups_published_at"], second["waits_for"]) == (None, None)
    assert second["opened_at"] >= first["published_at"]


def test_groups_nobody_trained_in_go_ahead_with_the_model_they_have(world: World) -> None:
    """With one client and two groups the second is empty: its model stays, and there is nothing to hand over."""
    fed = start(world, names=["a"], rounds={"clients_per_round": 0.2})
    everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {})
    first, second = world.round(fed, 1), world.round(fed, 2)
    assert (first["models"], second["base_models"]) == ({}, {"main~1": first["base_models"]["main~1"]})
    end(world, job, {"main": 50})
    assert world.round(fed, 2)["base_models"] == {
        **second["base_models"],
        "main": world.round(fed, 1)["models"]["main"],
    }


def test_each_prototype_has_a_main_model_of_its_own(world: World) -> None:
    prototypes = [{"name": name, "architecture": "mlp", "options": {"hidden": [4]}} for name in ("main", "wide")]
    fed = start(world, names=[], rounds={"min_clients": 4}, prototypes=prototypes)
    for name in NAMES:
        world.enrol(fed, name, prototype="main" if name in "ab" else "wide")
    everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51, "wide~1": 52})
    assert world.round(fed)["base_models"].keys() == {"main~1", "wide~1"}
    groups = groups_of(world, fed)
    for name, members in groups.items():
        assert len(members) == 1
        assert (world.assignment(fed.devices[members[0]])["action"] == "train") is ("~" in name)
    end(world, job, {"main": 53, "wide": 54, "main~1": 51, "wide~1": 52})
    assert world.round(fed)["base_models"] == world.round(fed, 1)["models"]
    assert world.round(fed)["base_models"].keys() == groups.keys()


# ------------------------------------------------------------------------------------------------- doors that stay shut
def test_a_round_that_waits_cannot_be_closed_nor_takes_what_has_no_base(world: World) -> None:
    fed, job = ahead(world)
    second, groups = world.round(fed), groups_of(world, fed)
    for name in groups["main~1"]:
        answer(world, fed, name)
    response = world.op("POST", f"/v1/rounds/{second['id']}/close?force=true")
    assert refused(response) == (409, "invalid-transition")
    assert "main model" in response.json()["detail"]
    old = world.round(fed, 1)["base_models"]["main"]
    body = world.forge.pack(world.forge.arrays(), {"num_samples": "10", "base_model": old})
    answered = world.push(fed, groups["main"][0], body, url=f"/v1/rounds/{second['id']}/update")
    assert refused(answered) == (409, "round-closed")
    assert answered.json()["current_round_id"] == second["id"]
    assert world.round(fed)["answered"] == len(groups["main~1"])
    with world.store.read() as session:
        assert session.scalars(select(JobRow.round_id).where(JobRow.kind == "round")).all() == [
            world.round(fed, 1)["id"]
        ]
    end(world, job, {"main": 50, "main~1": 51})
    assert world.op("POST", f"/v1/rounds/{second['id']}/close?force=true").status_code == 200


def test_a_deadline_counts_from_the_main_model_on(world: World, move: Move) -> None:
    fed, job = ahead(world, rounds={"deadline_seconds": 300})
    others = groups_of(world, fed)["main~1"]
    move(3000)
    sweep_now(world)
    assert states(world, fed) == ["aggregating", "collecting"]
    answer(world, fed, others[0])  # after the deadline that the round was opened with
    end(world, job, {"main": 50, "main~1": 51})
    second = world.round(fed)
    assert (second["state"], second["answered"]) == ("collecting", 1)
    move(3200)  # the clock ticks beside it: a slow machine may take its time
    sweep_now(world)
    assert states(world, fed) == ["published", "collecting"]
    move(3301)
    sweep_now(world)
    assert states(world, fed) == ["published", "aggregating"]


def test_revoked_main_participants_are_not_waited_for(world: World) -> None:
    fed, job = ahead(world)
    groups = groups_of(world, fed)
    for name in groups["main~1"]:
        answer(world, fed, name)
    for name in groups["main"]:
        world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices[name].id}")
    assert states(world, fed) == ["aggregating", "collecting"]
    end(world, job, {"main": 50, "main~1": 51})
    assert states(world, fed) == ["published", "aggregating"]


def test_if_everybody_is_revoked_the_round_waits_and_is_skipped_then(world: World) -> None:
    fed, job = ahead(world)
    for device in fed.devices.values():
        world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{device.id}")
    assert states(world, fed) == ["aggregating", "collecting"]
    end(world, job, {"main": 50, "main~1": 51})
    assert states(world, fed) == ["published", "skipped"]
    assert world.show(fed)["state"] == "running"


def test_too_few_clients_for_another_round_open_none(world: World) -> None:
    fed = start(world, rounds={"min_updates": 4})
    everybody(world, fed)
    world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices['a'].id}")
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    assert states(world, fed) == ["aggregating"]
    world.enrol(fed, "a")  # now there are enough
    assert states(world, fed) == ["aggregating", "collecting"]
    end(world, job, {"main": 50, "main~1": 51})
    assert states(world, fed) == ["published", "collecting"]
