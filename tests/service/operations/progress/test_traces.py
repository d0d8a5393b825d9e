"""A job knows which request asked for it, and a round's which ones sent what it reads."""

from contract import traces
from service.operations.progress import jobs
from service.persistence.tables import JobRow
from tests.service.world import Fed, World


def parent(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


def send(world: World, fed: Fed, name: str, number: int | None) -> None:
    headers = {} if number is None else {"traceparent": parent(number)}
    assert world.push(fed, name, headers=headers).status_code == 201


def test_a_round_belongs_to_the_last_upload_and_names_the_others(world: World) -> None:
    fed = world.running(["a", "b", "c", "d"])
    for number, name in enumerate("abd", 1):
        send(world, fed, name, number)
    send(world, fed, "c", None)
    job = world.claim()
    assert (job.kind, job.traceparent) == ("round", None)
    with world.store.read() as session:
        assert jobs.traces_of(session, job) == [parent(1), parent(2), parent(3)]
    world.finish(job, {"main": world.forge.arrays(5)})
    for number, name in enumerate("abcd", 11):
        send(world, fed, name, number)
    job = world.claim()
    assert job.traceparent == parent(14)
    with world.store.read() as session:
        assert jobs.traces_of(session, job) == [parent(11), parent(12), parent(13)]


def test_a_job_belongs_to_the_operator_who_started_or_retried_it(world: World) -> None:
    fed = world.create(rounds={"total": 1, "min_clients": 1})
    world.enrol(fed, "a")
    world.ok("POST", f"/v1/federations/{fed.id}/start", headers={"traceparent": parent(5)})
    job = world.claim()
    assert job.traceparent == parent(5)
    with world.store.write() as session:
        jobs.end(jobs.held(session, job.id, job.fence), "fail")
        jobs.requeue(session, session.get_one(JobRow, job.id))
        assert session.get_one(JobRow, job.id).traceparent == parent(5), "nobody who traces asked for it again"
        jobs.end(session.get_one(JobRow, job.id), "cancel")
        with traces.below(parent(6)):
            jobs.requeue(session, session.get_one(JobRow, job.id))
        assert session.get_one(JobRow, job.id).traceparent == parent(6)
