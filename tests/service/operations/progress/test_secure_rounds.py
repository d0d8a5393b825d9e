"""Secure rounds on the service: what its devices are asked, who may drop out when, and that sums come out exactly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import func, select

from contract.wire.plans import SecurePlan
from service.config import Settings
from service.operations.upkeep import sweep
from service.persistence.tables import RoundRow, SecureMemberRow
from tests.service.conftest import Move
from tests.service.secure_devices import ACTIONS, PHASES, Crowd, read
from tests.service.world import World, refused
from worker.ledger import Ledger

PLAN = SecurePlan().model_dump() | {"weighted": True}


def _published(crowd: Crowd, index: int = 1) -> dict[str, np.ndarray]:
    round_ = crowd.world.round(crowd.fed, index)
    assert round_["state"] == "published", round_["reason"]
    return read(crowd.base(round_["models"]["main"]))


def _equal(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)


def _members(world: World) -> int:
    with world.store.read() as session:
        return session.scalar(select(func.count()).select_from(SecureMemberRow)) or 0


@pytest.mark.parametrize("fuse", ["weighted_mean", "uniform_mean"])
def test_a_round_goes_through_its_phases_and_publishes_the_exact_mean(world: World, tmp_path: Path, fuse: str) -> None:
    crowd = Crowd.of(world, tmp_path, recipe={"name": "fedavg", "options": {"fuse": {"kind": fuse}}})
    base = world.round(crowd.fed)["base_models"]["main"]
    for phase, action in zip(PHASES, ACTIONS, strict=True):
        assert crowd.phase() == phase
        assert [crowd.action(name) for name in "abcd"] == [action] * 4
        if phase == "reveal":
            crowd.answer("a", "b", "c")  # three of four shares of everything: enough
        else:
            crowd.answer(*"abcd")
    shown = world.round(crowd.fed)
    assert (shown["state"], shown["secure"]) == ("aggregating", None)
    crowd.fuse()
    by_samples = fuse == "weighted_mean"
    _equal(_published(crowd), crowd.wanted(base, "abcd", PLAN | {"weighted": by_samples}))
    weights = world.round(crowd.fed, 1)["metrics"]["weights"]
    assert weights == {name: samples / 46 if by_samples else 1 / 4 for name, samples in crowd.samples.items()}
    assert _members(world) == 0, "what was revealed is gone with the round"
    assert crowd.phase() == "keys", "the next round has fresh keys"


@pytest.mark.parametrize(
    ("phase", "members"), [("keys", "abcd"), ("shares", "abcde"), ("training", "abcd"), ("confirm", "abcde")]
)
def test_a_device_that_drops_out_in_a_phase_spoils_nothing(
    world: World, tmp_path: Path, move: Move, phase: str, members: str
) -> None:
    crowd = Crowd.of(world, tmp_path, "abcde", rounds={"deadline_seconds": 600})
    base = world.round(crowd.fed)["base_models"]["main"]
    crowd.reach(phase)
    crowd.answer(*"abcd")
    assert crowd.phase() == phase, "it waits for e"
    move(700)
    sweep.sweep(world.store)
    assert crowd.phase() != phase
    if phase != "confirm":
        assert "without this client" in world.assignment(crowd.fed.devices["e"])["reason"]
    crowd.finish("abcd")
    crowd.fuse()
    survivors = "abcde" if phase == "confirm" else "abcd"
    _equal(_published(crowd), crowd.wanted(base, survivors, PLAN))


def test_a_round_with_too_few_is_skipped_with_its_reason(world: World, tmp_path: Path, move: Move) -> None:
    cases = {"keys": "keys of 2 devices", "shares": "shares of 2 devices", "training": "got 2 of 3 updates"}
    for number, (phase, words) in enumerate(cases.items()):
        crowd = Crowd.of(world, tmp_path, rounds={"deadline_seconds": 600, "max_skipped": 1})
        crowd.reach(phase)
        crowd.answer("a", "b")
        move(1000 * (number + 1))
        sweep.sweep(world.store)
        shown = world.round(crowd.fed)
        assert shown["state"] == "skipped" and words in shown["reason"], shown["reason"]
        assert _members(world) == 0


def test_too_few_signatures_or_shares_skip_the_round_and_keep_the_model(
    world: World, tmp_path: Path, move: Move
) -> None:
    for number, (phase, words) in enumerate([("confirm", "signatures"), ("reveal", "what unmasks the sum")]):
        crowd = Crowd.of(world, tmp_path, rounds={"max_skipped": 1})
        base = world.round(crowd.fed)["base_models"]
        crowd.reach(phase)
        crowd.answer("a", "b")
        move(1000 * (number + 1))
        sweep.sweep(world.store)
        shown = world.round(crowd.fed)
        assert shown["state"] == "skipped" and words in shown["reason"]
        assert {person["state"] for person in shown["participants"]} == {"excluded"}
        assert world.show(crowd.fed)["models"]["main"]["id"] == base["main"]


def test_words_are_taken_once_in_their_phase_and_session(world: World, tmp_path: Path) -> None:
    crowd = Crowd.of(world, tmp_path)
    asked = world.assignment(crowd.fed.devices["a"])
    for name in "ab":
        assert crowd.say(name, asked | {"client_name": name}).status_code == 200
    said = {"session": asked["secure"]["session"], "keys": world_keys(crowd, "a")}
    assert crowd.put("a", "keys", said).json()["phase"] == "keys", "the same again"
    assert refused(crowd.put("a", "keys", said | {"keys": world_keys(crowd, "b")})) == (409, "already-delivered")
    assert refused(crowd.put("c", "keys", said | {"session": "another"})) == (409, "round-closed")
    early = {"session": said["session"], "sealed": {}}
    assert refused(crowd.put("a", "shares", early)) == (409, "round-closed")
    crowd.reach("shares")
    assert refused(crowd.put("a", "shares", early)) == (422, "invalid-field")
    assert refused(crowd.put("a", "keys", {"session": said["session"]})) == (422, "invalid-field")
    crowd.reach("reveal")
    nobody = {"session": said["session"], "seeds": {"zoe": "0" * 66}, "keys": {}}
    assert refused(crowd.put("a", "revelation", nobody)) == (422, "invalid-field")
    alive = {"session": said["session"], "seeds": {}, "keys": {"b": "0" * 66}}
    assert refused(crowd.put("a", "revelation", alive)) == (422, "invalid-field")


def world_keys(crowd: Crowd, name: str) -> dict[str, Any]:
    from client_sdk.secure import party

    return party.advertise(crowd.own[name]).model_dump()


def test_updates_that_are_not_masked_for_the_session_are_refused(world: World, tmp_path: Path) -> None:
    crowd = Crowd.of(world, tmp_path)
    assert refused(world.push(crowd.fed, "a")) == (409, "round-closed")
    crowd.reach("training")
    plain = world.update(crowd.fed, session=crowd.own["a"].session)
    assert refused(world.push(crowd.fed, "a", plain)) == (422, "invalid-tensors")
    residues = {name: np.zeros(values.shape, np.int64) for name, values in world.forge.arrays().items()}
    told = {"num_samples": "10", "base_model": world.round(crowd.fed)["base_models"]["main"]}
    for session in ({}, {"session": "another"}):
        other = world.forge.pack(residues, told | session)
        assert refused(world.push(crowd.fed, "a", other)) == (422, "invalid-field")
    crowd.answer("a")
    assert world.updates() == 1


def test_an_operator_closes_the_phase_of_training_alone(world: World, tmp_path: Path) -> None:
    crowd = Crowd.of(world, tmp_path, "abcde")
    close = f"/v1/rounds/{world.round(crowd.fed)['id']}/close?force=true"
    assert refused(world.op("POST", close)) == (409, "invalid-transition")
    crowd.reach("training")
    crowd.answer("a", "b", "c")
    assert refused(world.op("POST", close)) == (409, "too-few-updates"), "four of five unmask a sum"
    crowd.answer("d")
    assert world.ok("POST", close)["state"] == "collecting"
    assert crowd.phase() == "confirm"
    crowd.finish("abcd")
    crowd.fuse()
    assert world.round(crowd.fed, 1)["state"] == "published"


def test_a_revoked_device_is_a_dropout(world: World, tmp_path: Path) -> None:
    crowd = Crowd.of(world, tmp_path, "abcdefg", rounds={"total": 1})
    url = f"/v1/federations/{crowd.fed.id}/clients/"
    crowd.reach("shares")
    crowd.answer(*"abcdef")
    world.ok("DELETE", url + crowd.fed.devices.pop("g").id)
    assert crowd.phase() == "training"
    crowd.answer(*"abcdef")
    assert crowd.phase() == "confirm"
    crowd.answer("a")
    world.ok("DELETE", url + crowd.fed.devices.pop("f").id)
    crowd.finish()
    crowd.fuse()
    assert world.round(crowd.fed, 1)["state"] == "published"
    assert set(world.round(crowd.fed, 1)["metrics"]["weights"]) == set("abcdef")


def test_a_client_is_forgotten_before_its_sum_is_read_and_not_while(world: World, tmp_path: Path) -> None:
    crowd = Crowd.of(world, tmp_path, "abcde")
    crowd.reach("confirm")
    url = f"/v1/federations/{crowd.fed.id}/clients/"
    world.ok("DELETE", url + crowd.fed.devices.pop("e").id + "?forget=true")
    assert "deleted" in world.round(crowd.fed, 1)["reason"]
    crowd.finish()
    assert refused(world.op("DELETE", url + crowd.fed.devices["d"].id + "?forget=true")) == (409, "in-use")


def test_a_rollback_begins_with_fresh_keys(world: World, tmp_path: Path) -> None:
    crowd = Crowd.of(world, tmp_path)
    crowd.finish()
    crowd.fuse()
    crowd.reach("confirm")
    before = crowd.own["a"].session
    world.ok("POST", f"/v1/federations/{crowd.fed.id}/rollback", json={"round": 0})
    assert crowd.phase() == "keys" and world.updates() == 4
    crowd.finish()
    assert crowd.own["a"].session != before
    crowd.fuse()
    base = world.round(crowd.fed)["base_models"]["main"]
    _equal(_published(crowd, 2), crowd.wanted(base, "abcd", PLAN))


def test_a_failed_job_is_tried_again_whole(world: World, tmp_path: Path) -> None:
    crowd = Crowd.of(world, tmp_path)
    base = world.round(crowd.fed)["base_models"]["main"]
    crowd.finish()
    ledger = Ledger(world.settings)
    job = ledger.claim()
    assert job is not None
    ledger.fail(job, "internal", "because", final=True)
    ledger.leave()
    retry = f"/v1/jobs/{job.id}/retry"
    assert refused(world.op("POST", retry, json={"exclude": ["a"]})) == (422, "invalid-field")
    world.ok("POST", retry)
    crowd.fuse()
    _equal(_published(crowd), crowd.wanted(base, "abcd", PLAN))


def test_deleting_a_federation_takes_everything_along(world: World, tmp_path: Path) -> None:
    crowd = Crowd.of(world, tmp_path)
    crowd.reach("reveal")
    world.ok("POST", f"/v1/federations/{crowd.fed.id}/cancel")
    assert _members(world) == 0
    world.ok("DELETE", f"/v1/federations/{crowd.fed.id}")
    with world.store.read() as session:
        assert session.scalars(select(RoundRow)).first() is None


def test_a_service_that_is_started_anew_in_every_phase_goes_on(settings: Settings, tmp_path: Path) -> None:
    """What was answered counts after a kill, and what was not can be said: two have spoken in each phase."""
    crowd = Crowd.of(World(settings), tmp_path)
    base = crowd.world.round(crowd.fed)["base_models"]["main"]
    for phase in PHASES:
        crowd.reach(phase)
        crowd.answer("a", "b")
        operator = crowd.world.operator
        crowd.world.close()
        crowd.world = World(settings)
        crowd.world.operator = operator
        assert crowd.phase() == phase
        crowd.answer("c")
    crowd.finish()
    crowd.fuse()
    _equal(_published(crowd), crowd.wanted(base, "abcd", PLAN))
    crowd.world.close()
