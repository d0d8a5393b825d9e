"""Jobs as an operator sees them."""

from service.operations.store import workers
from tests.service.world import World


def test_a_job_names_the_round_that_it_fuses(world: World) -> None:
    fed = world.running(("a",))
    for index in (1, 2):
        assert world.push(fed, "a").is_success
        if index == 1:
            world.finish(world.claim(), {"main": world.forge.arrays(index)})
    jobs = world.ok("GET", f"/v1/jobs?federation={fed.id}")["items"]
    assert [(job["kind"], job["round"]) for job in jobs] == [("initialize", None), ("round", 1), ("round", 2)]
    assert [world.ok("GET", f"/v1/jobs/{job['id']}")["round"] for job in jobs] == [None, 1, 2]
    assert world.ok("POST", f"/v1/jobs/{jobs[2]['id']}/cancel")["round"] == 2
    assert world.ok("POST", f"/v1/jobs/{jobs[2]['id']}/retry")["round"] == 2


def test_the_feed_of_running_jobs_names_rounds_too(world: World) -> None:
    fed = world.running(("a",))
    assert world.push(fed, "a").is_success
    world.claim()
    with world.store.read() as session:
        (job,) = workers.running(session)
    assert (job.kind, job.round) == ("round", 1)
