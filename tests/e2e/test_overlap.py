"""FedSDD's overlap (App. A.6) with real devices and a worker: other moments, the same models."""

import threading
from pathlib import Path
from typing import Any

import pytest

from client_sdk import train_and_push
from contract.wire.federations import FederationCreate
from tools.deployment import Deployment, add_server_data, federation_request, images, wait_for

NAMES = ("east", "north", "south", "west")
ROUNDS = 3


class Devices:
    """A thread a device, each with skewed data, from enrolment to the federation's end."""

    def __init__(self, deployment: Deployment, created: Any, folder: Path):
        self.errors: list[Exception] = []
        self._given = deployment.url, created.id, created.join_token, folder
        self._threads = [threading.Thread(target=self._run, args=pair, daemon=True) for pair in enumerate(NAMES)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int, name: str) -> None:
        url, federation, join_token, folder = self._given
        try:
            train_and_push(
                url, images(number, 40 + 10 * number, classes=[number, (number + 1) % 4]), federation=federation,
                join_token=join_token, name=name, state_dir=folder / name, device="cpu", progress=False,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - it is reported in the main thread
            self.errors.append(error)

    def join(self) -> None:
        """Wait for the end."""
        for thread in self._threads:
            thread.join(timeout=150)
        assert not self.errors, self.errors
        assert not any(thread.is_alive() for thread in self._threads)


def begin(deployment: Deployment, name: str, overlap: bool, folder: Path) -> tuple[str, Devices]:
    options = {
        "groups": {"count": 2, "overlap": overlap},
        "members": {"rounds": 2},
        "schedule": {"steps": 300, "batch_size": 32},
    }
    request = federation_request(
        name,
        {"name": "fedsdd", "options": options},
        rounds={"total": ROUNDS, "min_clients": len(NAMES), "min_updates": len(NAMES)},
    )
    created = deployment.operator.create_federation(FederationCreate.model_validate(request))
    deployment.operator.start_federation(created.id)
    return created.id, Devices(deployment, created, folder / name)


def made(deployment: Deployment, federation: str) -> list[tuple[Any, ...]]:
    """Return what every model of a federation is, whenever it was made; the ring of past averages is among them.

    What retention lets go is waited for: the worker sees to it once devices have the last model.
    """

    def spent() -> bool:
        models = deployment.operator.models(federation=federation, limit=100).items
        return all((m.role, m.round) != ("state", 1) for m in models)

    wait_for(spent, why="what round 1 handed on stays")
    models = deployment.operator.models(federation=federation, limit=100).items
    return sorted((m.role, m.round, m.prototype or "", m.digest) for m in models)


def rounds_of(deployment: Deployment, federation: str) -> list[Any]:
    return [deployment.operator.round(each.id) for each in deployment.operator.rounds(federation).items]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_same_models_with_and_without_overlap_and_after_a_kill_in_between(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The worker is killed after round 1's averages and before its main model; round 3's ring has two rounds in it."""
    add_server_data(deployment)
    ordered, devices = begin(deployment, "in-order", False, tmp_path)
    devices.join()
    expected = made(deployment, ordered)
    kinds = [(role, index) for role, index, *_ in expected]
    assert {("global", index) for index in (1, 2, 3)} | {("state", 2), ("state", 3)} <= set(kinds)
    assert kinds.count(("state", 2)) == 2
    plain = rounds_of(deployment, ordered)
    assert all(each.groups_published_at is None for each in plain)
    assert all(before.published_at <= after.opened_at for before, after in zip(plain, plain[1:], strict=False))

    federation, devices = begin(deployment, "overlapped", True, tmp_path)
    wait_for(
        lambda: any(each.groups_published_at for each in deployment.operator.rounds(federation).items),
        why="no averages are handed over",
    )
    deployment.kill("worker")
    first, second = rounds_of(deployment, federation)
    assert (first.state, second.state, second.waits_for) == ("aggregating", "collecting", first.id), "killed too late"

    def answered() -> set[str]:
        shown = deployment.operator.round(second.id)
        return {person.prototype for person in shown.participants if person.answered_at is not None}

    others = [person for person in second.participants if person.prototype == "main~1"]
    wait_for(lambda: deployment.operator.round(second.id).answered == len(others), why="the group does not train")
    assert answered() == {"main~1"}  # and nobody can have distilled: there is no worker
    deployment.start_worker()
    devices.join()

    assert deployment.operator.federation(federation).state == "finished"
    jobs = [job for job in deployment.operator.jobs(federation=federation, limit=100).items if job.kind == "round"]
    assert [job.attempt for job in jobs] == [2, 1, 1]
    shown = rounds_of(deployment, federation)
    assert [each.state for each in shown] == ["published"] * ROUNDS
    for before, after in zip(shown, shown[1:], strict=False):
        assert before.groups_published_at <= after.opened_at < before.published_at
        assert before.published_at <= after.closed_at
        late = [person.answered_at for person in after.participants if person.prototype == "main"]
        assert min(late) > before.published_at
    assert max(person.answered_at for person in shown[1].participants if person.prototype == "main~1") < (
        shown[0].published_at
    )
    assert made(deployment, federation) == expected
    assert deployment.operator.federation(federation).accuracies == deployment.operator.federation(ordered).accuracies
    assert not list((deployment.home / "blobs" / "tmp").iterdir()), "outputs were left behind"
