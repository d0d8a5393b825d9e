"""One bad client stops nobody: discriminators that are rejected, clients that are revoked at bad moments."""

from datetime import timedelta
from typing import Any

import pytest

from service.operations.fleet import updates
from service.operations.ledger import clock
from service.operations.progress import jobs
from service.operations.steer import publishing
from service.persistence.tables import ClientRow, DiscriminatorRow, JobRow
from tests.service.world import Fed, World


def give(world: World, fed: Fed, name: str, seed: int = 7) -> None:
    response = world.site.request(
        "PUT",
        f"/v1/federations/{fed.id}/discriminator",
        token=fed.devices[name].token,
        body=world.forge.pack(world.forge.arrays(seed)),
    )
    assert response.status_code == 201, response.text


def queued(world: World) -> list[str]:
    return [job["kind"] for job in world.ok("GET", "/v1/jobs?state=queued")["items"]]


def test_a_rejected_discriminator_keeps_its_client_out_and_the_others_go_on(world: World) -> None:
    fed = world.collecting(["a", "bad"], rounds={"min_clients": 1})
    give(world, fed, "a")
    give(world, fed, "bad", seed=8)
    job = world.claim()
    world.finish(job, {"a": world.forge.arrays(100)}, {"rejected": {"bad": "non_finite: scores overflow"}})
    assert world.show(fed)["state"] == "running"
    assert {person["name"] for person in world.round(fed)["participants"]} == {"a"}
    told = world.assignment(fed.devices["bad"])
    assert told["action"] == "wait"
    assert "rejected: non_finite" in told["reason"]
    assert queued(world) == []


def test_a_revoked_client_with_an_unscored_discriminator_makes_no_endless_jobs(world: World) -> None:
    fed = world.collecting(["a", "late"], rounds={"min_clients": 1})
    give(world, fed, "a")
    late = fed.devices["late"]
    give(world, fed, "late", seed=8)
    world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{late.id}")
    world.finish(world.claim(), {"a": world.forge.arrays(100)})
    assert world.show(fed)["state"] == "running"
    assert queued(world) == []


def test_a_score_job_that_fails_for_good_is_not_queued_again_until_it_is_retried(world: World) -> None:
    fed = world.collecting(["a"])
    give(world, fed, "a")
    world.finish(world.claim(), {"a": world.forge.arrays(100)})
    late = world.enrol(fed, "late")
    give(world, fed, "late", seed=9)
    job = world.claim()
    with world.store.write() as session:
        publishing.give_up(session, jobs.held(session, job.id, job.fence), "internal", "a fault of ours")
    world.enrol(fed, "another")  # anything that lets the federation go on
    assert queued(world) == []
    assert world.show(fed)["state"] == "running"
    assert "a fault of ours" in world.assignment(late)["reason"]
    world.ok("POST", f"/v1/jobs/{job.id}/retry")
    world.finish(world.claim(), {"late": world.forge.arrays(101)})
    with world.store.read() as session:
        rows = session.query(DiscriminatorRow).all()
        assert all(row.scores_digest and not row.rejected for row in rows)
        assert session.query(JobRow).filter(JobRow.state == "queued").count() == 0


def test_past_its_deadline_a_round_sends_nobody_to_train(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = world.running(["a"], rounds={"deadline_seconds": 60})
    assert world.assignment(fed.devices["a"])["action"] == "train"
    later = clock.now() + timedelta(seconds=61)
    monkeypatch.setattr(updates, "now", lambda: later)
    told = world.assignment(fed.devices["a"])
    assert (told["action"], "deadline" in told["reason"]) == ("wait", True)


def test_a_client_revoked_during_its_upload_does_not_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = world.running(["a", "b"])
    accept = updates.accept

    def slow(session: Any, ticket: Any, *rest: Any) -> Any:
        with_revoked = session.get_one(ClientRow, ticket.client_id)
        with_revoked.revoked_at = clock.now()  # an operator was faster than the last byte
        session.flush()
        return accept(session, ticket, *rest)

    body, before = world.update(fed), world.files()
    monkeypatch.setattr(updates, "accept", slow)
    assert world.push(fed, "a", body).status_code == 401
    assert world.updates() == 0
    assert world.files() == before


def test_a_second_enrolment_with_the_key_of_a_revoked_client_gets_no_dead_token(world: World) -> None:
    fed = world.create()
    body, headers = {"name": "a", "num_samples": 3}, {"Idempotency-Key": "k1"}
    url = f"/v1/federations/{fed.id}/clients"
    first = world.site.request("POST", url, token=fed.join_token, json=body, headers=headers)
    assert first.status_code == 201
    world.ok("DELETE", f"{url}/{first.json()['client_id']}")
    again = world.site.request("POST", url, token=fed.join_token, json=body, headers=headers)
    assert again.status_code == 401


def test_a_start_that_is_repeated_with_its_key_is_one_start(world: World) -> None:
    fed = world.create()
    answers = [world.op("POST", f"/v1/federations/{fed.id}/start", headers={"Idempotency-Key": "s"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert queued(world) == ["initialize"]
    assert world.op("POST", f"/v1/federations/{fed.id}/start").status_code == 409
