"""Readiness is about work being taken: ages of the last heartbeat and of the job that waits, not a living process."""

import re
import socket
from datetime import timedelta

import pytest

from contract.wire.federations import FederationCreate
from service.operations.ledger import clock
from service.operations.progress import jobs
from service.operations.steer import control, creation
from service.operations.store import workers
from service.operations.view import liveness
from tests.service.conftest import Both, Move

BODY = {
    "name": "f",
    "task": {"num_classes": 3, "input": {"shape": [2]}},
    "prototypes": [{"architecture": "mlp"}],
    "recipe": {"name": "fedavg"},
}
HOST = socket.gethostname()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Move:
    """Move the clock of the judgement forward."""

    def forward(seconds: float) -> None:
        moment = clock.now() + timedelta(seconds=seconds)
        monkeypatch.setattr(liveness, "now", lambda: moment)
        monkeypatch.setattr(workers, "now", lambda: moment)

    return forward


def beat(both: Both, worker: str = "wrk_1", pid: int = 7, job: str | None = None, host: str = HOST) -> None:
    with both.store.write() as session:
        workers.heartbeat(session, worker, host, pid, "cpu", job)


def queue(both: Both) -> None:
    with both.store.write() as session:
        row = creation.create(session, b"k" * 16, FederationCreate.model_validate(BODY))
        control.start(session, row.id)


def verdicts(both: Both) -> tuple[bool, bool, bool]:
    """Return (heard, taken, this host's worker is well)."""
    with both.store.read() as session:
        heard = liveness.heard(session)
        return (
            liveness.beats(heard).ok,
            liveness.takes(session, heard).ok,
            liveness.worker_here(session).ok,
        )


def test_a_worker_that_beats_and_has_nothing_to_do_is_well(both: Both) -> None:
    assert verdicts(both) == (False, True, False)
    beat(both)
    assert verdicts(both) == (True, True, True)


def test_a_silent_worker_is_not(both: Both, later: Move) -> None:
    beat(both)
    later(25)
    assert verdicts(both) == (False, True, False)


def test_a_job_that_waits_beside_an_idle_worker_turns_it_red(both: Both, later: Move) -> None:
    queue(both)
    beat(both)
    assert verdicts(both) == (True, True, True), "it has only just come"
    later(70)
    beat(both)
    assert verdicts(both) == (True, False, False)
    with both.store.read() as session:
        assert re.search(r"waits 7[0-9] s", liveness.worker_here(session).detail)


def test_a_job_may_wait_while_every_worker_is_busy(both: Both, later: Move) -> None:
    queue(both)
    later(3600)
    beat(both, job="job_other")
    assert verdicts(both) == (True, True, True)
    beat(both, worker="wrk_2", pid=8)
    assert verdicts(both)[1] is False, "one of two has nothing to do and does not take it"


def test_a_job_that_was_given_back_or_pauses_has_not_waited_since_it_was_made(both: Both, later: Move) -> None:
    queue(both)
    beat(both)
    with both.store.write() as session:
        job = jobs.claim(session, "wrk_1", "cpu", 30.0)
        assert job is not None
        jobs.release(session, job, "internal", "")
        job.created_at -= timedelta(hours=1)
    with both.store.read() as session:
        assert liveness.waits_since(session, "cpu") is None
    later(30)
    with both.store.read() as session:
        since = liveness.waits_since(session, "cpu")
    assert since is not None and since > clock.now() - timedelta(seconds=5)


def test_a_job_left_by_a_dead_worker_waits_since_its_lease_ran_out(both: Both, later: Move) -> None:
    queue(both)
    with both.store.write() as session:
        jobs.claim(session, "wrk_1", "cpu", 30.0)
    later(100)
    beat(both, worker="wrk_2")
    assert verdicts(both) == (True, False, False)


def test_a_worker_of_another_host_or_process_does_not_speak_for_this_one(both: Both) -> None:
    beat(both, host="elsewhere", pid=9)
    with both.store.read() as session:
        assert not liveness.worker_here(session).ok
    beat(both, worker="wrk_2", pid=10)
    with both.store.read() as session:
        assert liveness.worker_here(session).ok
        assert liveness.worker_here(session, 10).ok
        assert not liveness.worker_here(session, 11).ok
