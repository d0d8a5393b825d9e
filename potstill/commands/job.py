"""`potstill job` and `potstill worker`: the work that is done, and who does it."""

from typing import Annotated, Any

import typer

from contract.wire.rounds import Job
from potstill.commands.federation import how_far, resolve
from potstill.connection import Token, Url, operator
from potstill.console import Group, Json, out, print_table, show_list, show_one, size

app = typer.Typer(cls=Group, no_args_is_help=True, help="Look at jobs, retry and cancel them.")
worker_app = typer.Typer(cls=Group, no_args_is_help=True, help="Look at workers.")


@app.command("list")
def list_(
    federation: Annotated[str | None, typer.Option(help="A federation's id or name.")] = None,
    state: Annotated[str | None, typer.Option(help="queued, running, done, failed or cancelled.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List jobs, the oldest first."""
    with operator(url, token) as client:
        id_ = None if federation is None else resolve(client, federation)
        items = list(client.each(client.jobs, federation=id_, state=state))
    show_list(
        items,
        as_json,
        ["id", "kind", "round", "state", "attempt", "error", "detail"],
        lambda j: [j.id, j.kind, j.round, j.state, f"{j.attempt}/{j.max_attempts}", j.error, j.detail],
    )


@app.command()
def show(job_id: str, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Show a job: how far it is, who does it, and what went wrong if anything did."""
    with operator(url, token) as client:
        show_one(client.job(job_id), as_json, _tell)


def _tell(job: Job) -> None:
    begun = job.resumed_from
    facts: list[list[Any]] = [
        ["kind", job.kind],
        ["federation", job.federation_id],
        ["round", None if job.round_id is None else f"{job.round} ({job.round_id})"],
        ["state", job.state],
        ["now", how_far(job)],
        ["attempt", f"{job.attempt} of {job.max_attempts}"],
        ["went on from", None if begun is None else f"{begun.phase}, step {begun.step}"],
        ["queue", job.queue],
        ["worker", job.worker],
        ["device", job.device],
        ["peak memory", None if job.peak_memory_bytes is None else size(job.peak_memory_bytes)],
        ["queued", job.created_at],
        ["started", job.started_at],
        ["finished", job.finished_at],
        ["error", job.error],
        ["detail", job.detail],
    ]
    print_table([job.id, ""], [fact for fact in facts if fact[1] is not None])


def _tell_state(job: Job) -> None:
    out().print(f"{job.id}: {job.state}")


@app.command()
def retry(
    job_id: str,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave this client's update out; may be given more than once.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also when fewer than min_updates are left.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Let a failed job run again; its round and federation go on."""
    with operator(url, token) as client:
        show_one(client.retry_job(job_id, exclude=exclude or (), force=force), as_json, _tell_state)


@app.command()
def cancel(job_id: str, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """End a job; its round fails and its federation pauses."""
    with operator(url, token) as client:
        show_one(client.cancel_job(job_id), as_json, _tell_state)


@worker_app.command("list")
def list_workers(url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List workers, the newest first: who is alive, on what device, doing what."""
    with operator(url, token) as client:
        items = client.workers()
    show_list(
        items,
        as_json,
        ["id", "host", "pid", "device", "queues", "alive", "last seen", "job"],
        lambda w: [w.id, w.host, w.pid, w.device, ", ".join(w.queues), w.alive, w.last_seen_at, w.job_id],
    )
