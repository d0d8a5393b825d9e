"""What is kept, for how long, and what becomes of what is not."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from contract.wire.retention import Retention
from service.operations.ledger.clock import now
from service.operations.steer import retention
from service.operations.upkeep import sweep
from service.persistence.tables import FederationRow, ModelRow, ProvenanceRow, RoundRow, UpdateRow
from tests.service.world import Fed, World


def blob_count(world: World) -> int:
    return len(world.files())


def removed(world: World, table: Any) -> list[bool]:
    with world.store.read() as session:
        return [row.removed_at is not None for row in session.scalars(select(table).order_by(table.id))]


def play(world: World, fed: Fed, number: int, state: dict[str, Any] | None = None, **origin: Any) -> None:
    """Let both devices send and publish the round."""
    for place, name in enumerate(fed.devices):
        assert world.push(fed, name, world.update(fed, seed=100 * number + place)).status_code == 201
    world.finish(world.claim(), {"main": world.forge.arrays(1000 + number)}, state=state)


def stored(world: World, digest: str) -> bool:
    return bool(world.blobs.cache.path(digest).exists())


@pytest.mark.parametrize(
    ("keep", "kept"), [(0, [False] * 6), (1, [False] * 4 + [True] * 2), ("all", [True] * 6)], ids=str
)
def test_updates_of_the_newest_rounds_stay(world: World, keep: Any, kept: list[bool]) -> None:
    fed = world.running(["a", "b"], rounds={"total": 3}, retention={"updates": keep})
    for number in range(3):
        play(world, fed, number)
    assert removed(world, UpdateRow) == [not stays for stays in kept]
    with world.store.read() as session:
        digests = list(session.scalars(select(UpdateRow.digest).order_by(UpdateRow.id)))
    assert [stored(world, digest) for digest in digests] == kept
    sweep.tidy(world.store, world.blobs, world.settings)  # a second time, and by the collection of blobs
    assert removed(world, UpdateRow) == [not stays for stays in kept]


def test_updates_that_wait_to_be_fused_are_never_removed(world: World) -> None:
    fed = world.running(["a", "b"], retention={"updates": 0})
    assert world.push(fed, "a").status_code == 201
    sweep.tidy(world.store, world.blobs, world.settings)
    assert removed(world, UpdateRow) == [False]
    assert world.push(fed, "b", world.update(fed, seed=2)).status_code == 201
    sweep.tidy(world.store, world.blobs, world.settings)
    assert removed(world, UpdateRow) == [False, False]


def test_models_of_old_rounds_go_and_current_ones_and_those_of_open_rounds_stay(world: World) -> None:
    fed = world.running(["a", "b"], rounds={"total": 4}, retention={"models": 1})
    for number in range(3):
        play(world, fed, number)
    models = world.ok("GET", f"/v1/models?federation={fed.id}")["items"]
    assert [(model["round"], model["removed_at"] is None) for model in models] == [
        (0, False), (1, False), (2, False), (3, True),
    ]  # fmt: skip
    assert [stored(world, model["digest"]) for model in models] == [False, False, False, True]
    gone = world.op("GET", models[0]["url"])
    assert (gone.status_code, gone.json()["type"]) == (410, "urn:potstill:problem:removed")
    assert world.op("GET", models[3]["url"]).status_code == 200


def test_a_model_that_a_federation_is_to_start_from_is_not_removed(world: World) -> None:
    fed = world.running(["a", "b"], rounds={"total": 3}, retention={"models": 1})
    first = world.ok("GET", f"/v1/models?federation={fed.id}")["items"][0]
    prototypes = [{"architecture": "mlp", "options": {"hidden": [4]}, "initial_model": first["id"]}]
    world.create(prototypes=prototypes)
    for number in range(2):
        play(world, fed, number)
    models = world.ok("GET", f"/v1/models?federation={fed.id}")["items"]
    assert [model["removed_at"] is None for model in models] == [True, False, True]


def test_days_after_its_end_only_the_current_models_of_a_federation_stay(world: World) -> None:
    fed = world.running(["a", "b"], rounds={"total": 2}, retention={"updates": "all", "days": 3})
    for number in range(2):
        play(world, fed, number)
    assert world.show(fed)["state"] == "finished"
    sweep.tidy(world.store, world.blobs, world.settings)
    assert removed(world, UpdateRow) == [False] * 4
    with world.store.write() as session:
        session.execute(update(FederationRow).values(finished_at=now() - timedelta(days=3, seconds=1)))
    sweep.tidy(world.store, world.blobs, world.settings)
    assert removed(world, UpdateRow) == [True] * 4
    assert removed(world, ModelRow) == [True, True, False]
    assert blob_count(world) == 1


def test_scores_and_samples_go_with_the_end_where_the_plan_says_so(world: World) -> None:
    fed = world.collecting(["a"], retention={"discriminators": False})
    body = world.forge.pack(world.forge.arrays(2), {"num_samples": "10"})
    url = f"/v1/federations/{fed.id}/discriminator"
    assert world.site.request("PUT", url, token=fed.devices["a"].token, body=body).status_code == 201
    world.finish(world.claim(), {"a": world.forge.arrays(3)})
    before = world.files()
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert world.files() == before
    sweep.tidy(world.store, world.blobs, world.settings)
    assert len(before) - blob_count(world) == 2


def test_the_plan_can_be_changed_and_counts_at_once(world: World) -> None:
    fed = world.running(["a", "b"], rounds={"total": 3}, retention={"updates": "all"})
    play(world, fed, 0)
    assert world.show(fed)["retention"]["updates"] == "all"
    changed = world.ok("PUT", f"/v1/federations/{fed.id}/retention", json={"updates": 0})
    assert changed == Retention().model_dump()
    assert removed(world, UpdateRow) == [True, True]
    assert world.show(fed)["retention"] == changed


@pytest.mark.parametrize(
    ("plan", "field"),
    [({"models": 0}, "models"), ({"updates": -1}, "updates"), ({"days": -1}, "days"), ({"upd": 1}, "upd")],
)
def test_a_plan_that_cannot_be_is_refused_by_field(world: World, plan: dict[str, Any], field: str) -> None:
    fed = world.create()
    answer = world.op("PUT", f"/v1/federations/{fed.id}/retention", json=plan)
    assert answer.status_code == 422
    assert field in answer.json()["field"]
    assert world.show(fed)["retention"] is None


def test_state_that_a_kept_round_has_read_stays_until_the_round_goes(world: World) -> None:
    fed = world.running(["a", "b"], rounds={"total": 4}, retention={"updates": 1})
    for number in range(3):
        play(world, fed, number, state={"momentum": world.forge.arrays(500 + number)})
        with world.store.write() as session:  # as a worker's account would: the round read what the one before left
            round_ = session.scalars(select(RoundRow).where(RoundRow.index == number + 1)).one()
            states = list(session.scalars(select(ModelRow).where(ModelRow.role == "state").order_by(ModelRow.id)))
            job = world.ok("GET", f"/v1/jobs?federation={fed.id}")["items"][-1]["id"]
            text = f'{{"spec": {{"state": {{"momentum": "{states[-1].digest}"}}}}}}'
            session.add(
                ProvenanceRow(
                    id=f"prv_{number}", federation_id=fed.id, round_id=None, job_id=job, digest="-", document=text,
                    created_at=now(),
                )
            )  # fmt: skip
            upcoming = session.scalars(select(RoundRow.id).where(RoundRow.index == number + 2)).one()
            session.flush()
            session.get_one(ProvenanceRow, f"prv_{number}").round_id = upcoming
            assert round_.state == "published"
            assert [state.round_index for state in states] == ([1] if number == 0 else [number, number + 1])
    with world.store.write() as session:
        retention.change(session, fed.id, Retention(updates=0))
    with world.store.read() as session:
        assert [row.round_index for row in session.scalars(select(ModelRow).where(ModelRow.role == "state"))] == [3]
