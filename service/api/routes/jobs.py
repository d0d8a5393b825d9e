"""Jobs and the workers that do them."""

from typing import Annotated, Any

from fastapi import Body, Path, Query

from contract.wire.common import Page
from contract.wire.provenance import Provenance
from contract.wire.rounds import Job, JobRetry, JobState, Worker
from service.api.deps import After, Limit, NewestFirst, Operator, Services, Viewer
from service.api.problems import documented
from service.api.routing import router_of
from service.operations.progress import jobs
from service.operations.steer import publishing
from service.operations.store import provenance, workers

router = router_of("/v1", tag="jobs")
JobId = Annotated[str, Path(max_length=64)]
_RETRIES: dict[str, Any] = {
    "as it was": {"value": {}},
    "without a client": {"value": {"exclude": ["ward-7"]}},
}
_ONE = documented("unauthorized", "forbidden", "not-found")


@router.get("/jobs", responses=documented("unauthorized", "forbidden"))
def list_jobs(
    services: Services,
    caller: Viewer,
    limit: Limit = 50,
    after: After = None,
    federation: Annotated[str | None, Query(max_length=64)] = None,
    state: Annotated[JobState | None, Query()] = None,
    newest_first: NewestFirst = False,
) -> Page[Job]:
    """List jobs, the oldest first if not told otherwise."""
    with services.store.read() as session:
        items, following = workers.list_jobs(session, limit, after, federation, state, newest_first)
        return Page(items=items, next=following)


@router.get("/jobs/{job_id}", responses=_ONE)
def show_job(job_id: JobId, services: Services, caller: Viewer) -> Job:
    """Show a job: its state, attempt and, while it runs, how far it is."""
    with services.store.read() as session:
        return workers.describe_job(session, jobs.get(session, job_id))


@router.get("/jobs/{job_id}/provenance", responses=_ONE)
def show_job_provenance(job_id: JobId, services: Services, caller: Viewer) -> Provenance:
    """Show what a finished job was told and what it made: models, or the scores of discriminators."""
    with services.store.read() as session:
        return provenance.describe(session, provenance.of_job(session, jobs.get(session, job_id)))


@router.post("/jobs/{job_id}/cancel", responses=_ONE | documented("invalid-transition"))
def cancel_job(job_id: JobId, services: Services, caller: Operator) -> Job:
    """Cancel a job. A running one ends within seconds; its round fails and its federation pauses."""
    with services.store.write() as session:
        job = jobs.get(session, job_id)
        publishing.request_cancel(session, job)
        return workers.describe_job(session, job)


@router.post(
    "/jobs/{job_id}/retry", responses=_ONE | documented("invalid-transition", "invalid-field", "too-few-updates")
)
def retry_job(
    job_id: JobId,
    services: Services,
    caller: Operator,
    body: Annotated[JobRetry | None, Body(openapi_examples=_RETRIES)] = None,
) -> Job:
    """Let a failed or cancelled job run again; its round and federation go on from where they were.

    With `exclude` the updates of these clients are left out, so that one that cannot be used holds nobody up.
    """
    wish = body or JobRetry()
    with services.store.write() as session:
        job = jobs.get(session, job_id)
        publishing.revive(session, job, wish.exclude, wish.force)
        return workers.describe_job(session, job)


@router.get("/workers", responses=documented("unauthorized", "forbidden"))
def list_workers(services: Services, caller: Viewer) -> list[Worker]:
    """List workers: who is alive, on what device, doing what."""
    with services.store.read() as session:
        return workers.listing(session)
