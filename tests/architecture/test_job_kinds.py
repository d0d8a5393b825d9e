"""A kind of job is one row of `contract.jobs`, and everybody who has to do something with it has a row for it, too."""

from typing import get_args

from contract.jobs import JOB_KINDS
from contract.queue import JobName
from service.operations.steer.job_kinds import ENDINGS
from worker import pipeline
from worker.ledger import loading
from worker.specs import JobSpec


def test_every_kind_of_job_is_told_done_and_ended() -> None:
    kinds = set(JOB_KINDS)
    assert set(get_args(JobName)) == kinds
    assert {spec.model_fields["kind"].default for spec in get_args(JobSpec)} == kinds
    assert set(loading.LOADS) == kinds
    assert set(pipeline._DOES) == kinds
    assert set(ENDINGS) == kinds
