"""A kind of job is one row of `contract.jobs`, and everybody who has to do something with it has a row for it, too."""

from typing import get_args

from contract.jobs import JOB_KINDS
from contract.queue import JobName
from service.operations.steer.job_kinds import ENDINGS
from worker import pipeline
from worker.ledger import loading
from worker.specs import JobSpec


def test_every_kind_of_job_is_told_done_and_ended() -> None:
    rows = {
        "contract/queue.py JobName": set(get_args(JobName)),
        "contract/jobs.py JOB_KINDS": set(JOB_KINDS),
        "worker/specs.py JobSpec": {spec.model_fields["kind"].default for spec in get_args(JobSpec)},
        "worker/ledger/loading.py LOADS": set(loading.LOADS),
        "worker/pipeline/__init__.py _DOES": set(pipeline._DOES),
        "service/operations/steer/job_kinds.py ENDINGS": set(ENDINGS),
    }
    kinds = set().union(*rows.values())
    assert {place: sorted(kinds - known) for place, known in rows.items() if kinds - known} == {}
