"""`potstill status`: the service on one screen."""

from datetime import UTC, datetime

from pydantic import BaseModel

from contract.wire.federations import TERMINAL_STATES, FederationSummary
from contract.wire.rounds import Job, Worker
from contract.wire.status import Status
from potstill.commands.federation import how_far
from potstill.connection import Token, Url, operator
from potstill.console import Json, out, print_table, show_one
from potstill.figures import measured_in


class Screen(BaseModel):
    """What is shown: only federations that are not over, running jobs and the queued one that waits longest."""

    status: Status
    federations: list[FederationSummary]
    workers: list[Worker]
    running: list[Job]
    oldest_queued: Job | None


def status(url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Show on one screen whether all is well: federations that go on, workers, the job that waits longest."""
    with operator(url, token) as client:
        screen = Screen(
            status=client.status(),
            federations=[each for each in client.each(client.federations) if each.state not in TERMINAL_STATES],
            workers=client.workers(),
            running=list(client.each(client.jobs, state="running")),
            oldest_queued=next(iter(client.jobs(state="queued", limit=1).items), None),
        )
    show_one(screen, as_json, _tell)


def _tell(screen: Screen) -> None:
    found, console = screen.status, out()
    wrong = [f"{name}: {check.detail}" for name, check in found.checks.items() if not check.ok]
    console.print(f"potstill {found.version}: " + ("ready" if found.ready else "not ready"))
    for line in wrong:
        console.print(line, style="red")
    names = {each.id: each.name for each in screen.federations}
    work = {job.id: ": ".join(filter(None, [_of(job, names), how_far(job)])) for job in screen.running}
    console.print()
    print_table(
        ["federation", "state", "round", "clients", "measured", "detail"],
        [
            [f.name, f.state, f"{f.round}/{f.rounds_total}", f.clients, measured_in(f), f.detail]
            for f in screen.federations
        ],
    )
    console.print()
    print_table(
        ["worker", "device", "queues", "alive", "last seen", "does"],
        [
            [w.host, w.device, ", ".join(w.queues), w.alive, w.last_seen_at, work.get(w.job_id or "")]
            for w in screen.workers
        ],
    )
    if screen.oldest_queued is not None:
        job = screen.oldest_queued
        waited = (datetime.now(UTC) - job.created_at).total_seconds()
        console.print(f"\noldest queued job: {job.id}, {_of(job, names)}, for {max(0.0, waited):.0f} s")


def _of(job: Job, names: dict[str, str]) -> str:
    """Return what a job is for: 'round 3 of digits'."""
    what = job.kind if job.round is None else f"round {job.round}"
    return f"{what} of {names.get(job.federation_id, job.federation_id)}"
