"""A device that waits hears at once: from this process, and from another one."""

import threading
import time
from typing import Any

import pytest

from service.operations.ledger import after_commit
from service.operations.ledger.unit import Store
from service.operations.progress import reading
from service.persistence.engine import Database
from tests.service.world import Fed, World


@pytest.fixture
def waiting(world: World) -> threading.Event:
    """An event that is set when somebody waits."""
    begun, wait = threading.Event(), world.services.changes.wait

    async def noted(*args: Any) -> None:
        begun.set()
        await wait(*args)

    world.services.changes.wait = noted
    return begun


def poll(world: World, fed: Fed, waiting: threading.Event, name: str = "a") -> Any:
    future = world.site.begin("GET", "/v1/assignment?wait=20", token=fed.devices[name].token)
    assert waiting.wait(5)
    return future


def test_a_change_by_a_request_ends_the_wait(world: World, waiting: threading.Event) -> None:
    fed = world.create()
    world.enrol(fed, "a")
    future = poll(world, fed, waiting)
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert future.result(5).json()["action"] == "done"


def test_a_change_by_another_process_ends_the_wait(world: World, waiting: threading.Event) -> None:
    fed = world.running(["a", "b"])
    world.push(fed, "a")
    future = poll(world, fed, waiting)
    other = Store(Database(world.settings), world.blobs.store)  # knows nothing of the app: a worker's store
    with other.write() as session:
        row = reading.locked(session, fed.id)
        row.state = "finished"
        after_commit.touch(session, row)
    assert future.result(5).json()["action"] == "done"
    other.database.close()


def test_a_change_that_gives_nothing_to_do_goes_on_waiting(world: World, waiting: threading.Event) -> None:
    fed = world.create()
    world.enrol(fed, "a")
    future = poll(world, fed, waiting)
    waiting.clear()
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    assert waiting.wait(5)  # looked, found nothing, waits again
    assert not future.done()
    world.finish(world.claim(), {"main": world.forge.arrays()})
    assert future.result(5).json()["action"] == "train"


def test_what_is_there_already_is_answered_without_a_wait(world: World, waiting: threading.Event) -> None:
    fed = world.running(["a"])
    assert world.assignment(fed.devices["a"], wait=20)["action"] == "train"
    assert not waiting.is_set()


def test_the_wait_ends_with_its_time(world: World) -> None:
    fed = world.create()
    device = world.enrol(fed, "a")
    answer = world.assignment(device, wait=0.05)
    assert (answer["action"], answer["reason"]) == ("wait", "the operator has not started the federation")


def test_a_shutdown_sends_the_waiting_home(world: World, waiting: threading.Event) -> None:
    fed = world.create()
    world.enrol(fed, "a")
    future = poll(world, fed, waiting)
    world.services.changes.close()
    assert future.result(5).json()["action"] == "wait"


@pytest.mark.parametrize("wait", ["-1", "61", "x", "nan", "inf"])
def test_times_that_are_not_taken(shared: World, wait: str) -> None:
    fed = shared.create()
    device = shared.enrol(fed, "a")
    response = shared.site.request("GET", f"/v1/assignment?wait={wait}", token=device.token)
    assert (response.status_code, response.json()["field"]) == (422, "query.wait")


def test_a_device_is_seen_and_that_is_not_written_every_time(world: World) -> None:
    fed = world.create()
    device = world.enrol(fed, "a")

    def seen() -> str:
        return str(world.ok("GET", f"/v1/federations/{fed.id}/clients")["items"][0]["last_seen_at"])

    first = seen()
    time.sleep(0.002)
    world.assignment(device)
    assert seen() == first
