"""Federations whose rounds overlap, driven by hand: FedSDD in two groups, one of which is distilled."""

from typing import Any

from service.operations.progress import jobs
from service.operations.steer import overlap, publishing
from service.operations.store.outcome import Outcome
from service.operations.upkeep import sweep
from service.persistence.tables import JobRow
from tests.service.world import Fed, World

NAMES = ["a", "b", "c", "d"]


def sweep_now(world: World) -> None:
    sweep.sweep(world.store)


def start(world: World, groups: dict[str, Any] | None = None, names: list[str] = NAMES, **changes: Any) -> Fed:
    """Return a FedSDD federation whose first round collects; its models are `main` and `main~1` of each prototype."""
    recipe = {"name": "fedsdd", "options": {"groups": {"count": 2, **(groups or {})}, "schedule": {"steps": 1}}}
    rounds = {"total": 3, "min_clients": len(names), **changes.pop("rounds", {})}
    fed = world.create(recipe=recipe, rounds=rounds, datasets={"unlabeled": world.dataset()["id"]}, **changes)
    for name in names:
        world.enrol(fed, name)
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    made = [
        name for each in changes.get("prototypes", [{"name": "main"}]) for name in (each["name"], each["name"] + "~1")
    ]
    world.finish(world.claim(), {name: world.forge.arrays(40 + number) for number, name in enumerate(made)})
    return fed


def groups_of(world: World, fed: Fed, index: int = 0) -> dict[str, list[str]]:
    """Return model -> names of those who train it in a round, the newest by default."""
    found: dict[str, list[str]] = {"main": [], "main~1": []}
    for person in world.round(fed, index)["participants"]:
        found.setdefault(person["prototype"], []).append(person["name"])
    return found


def answer(world: World, fed: Fed, name: str, seed: int = 1) -> Any:
    """Deliver what the client's assignment asks for."""
    task = world.assignment(fed.devices[name])
    assert task["action"] == "train", task.get("reason")
    body = world.forge.pack(world.forge.arrays(seed), {"num_samples": "10", "base_model": task["model"]["id"]})
    response = world.push(fed, name, body, url=task["upload_url"])
    assert response.status_code == 201, response.text
    return response.json()


def everybody(world: World, fed: Fed) -> list[str]:
    """Have all clients of the newest round answer; return the digests of what they sent."""
    index = world.round(fed)["index"]
    asked = [person["name"] for person in world.round(fed)["participants"]]
    return [answer(world, fed, name, 100 * index + number)["digest"] for number, name in enumerate(asked)]


def hand_over(world: World, job: JobRow, files: dict[str, int]) -> None:
    """Do what the worker does once a round is averaged; files are given by their seed."""
    stored = {name: world._stored(world.forge.arrays(seed)) for name, seed in files.items()}
    with world.store.write() as session:
        made = Outcome(stored)
        overlap.publish_groups(session, job.id, job.fence, made)


def end(world: World, job: JobRow, files: dict[str, int], **figures: Any) -> None:
    """Publish a round's result."""
    world.finish(job, {name: world.forge.arrays(seed) for name, seed in files.items()}, figures)


def ahead(world: World, **changes: Any) -> tuple[Fed, JobRow]:
    """Return a federation whose round 1 distils while round 2 is open for the group `main~1`, and the job."""
    fed = start(world, **changes)
    everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    return fed, job


def states(world: World, fed: Fed) -> list[str]:
    return [each["state"] for each in world.ok("GET", f"/v1/federations/{fed.id}/rounds")["items"]]


def fail(world: World, job: JobRow) -> None:
    with world.store.write() as session:
        publishing.give_up(session, jobs.held(session, job.id, job.fence), "non_finite", "teacher 'a'")
