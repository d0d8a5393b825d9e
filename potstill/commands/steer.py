"""`potstill federation pause | resume | rollback`, `potstill round`, `potstill model`, `potstill job`."""

from typing import Annotated

import typer

from contract.wire.rounds import Participant, RoundDetail
from potstill.commands import federation
from potstill.commands.federation import Ref, resolve, show_state
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Group, Json, out, percent, print_json, print_table

round_app = typer.Typer(cls=Group, no_args_is_help=True, help="Look at rounds and close them.")
model_app = typer.Typer(cls=Group, no_args_is_help=True, help="List models, and choose what devices get.")
job_app = typer.Typer(cls=Group, no_args_is_help=True, help="List jobs, retry and cancel them.")


# ---------------------------------------------------------------------------------------------------------- federations
@federation.app.command()
def pause(federation: Ref, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Hold a federation: no round opens or closes."""
    with operator(url, token) as client:
        show_state(client.pause_federation(resolve(client, federation)), as_json)


@federation.app.command()
def resume(federation: Ref, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Go on; a round that has failed is given up."""
    with operator(url, token) as client:
        show_state(client.resume_federation(resolve(client, federation)), as_json)


@federation.app.command()
def rollback(
    federation: Ref,
    to_round: Annotated[
        int | None, typer.Option("--round", min=0, help="Back to the models after this round; 0 are the first.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Undo so many published rounds.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Go back to earlier models, of all prototypes; a round that collects begins again."""
    if (to_round is None) == (rounds is None):
        raise CliError("name --round or --rounds, one of the two")
    with operator(url, token) as client:
        found = client.rollback_federation(resolve(client, federation), round=to_round, rounds=rounds)
    show_state(found, as_json)


# --------------------------------------------------------------------------------------------------------------- rounds
def _progress(person: Participant) -> str | None:
    told = person.progress or {}
    if "step" in told and "of" in told:
        return f"step {told['step']} of {told['of']}"
    return f"epoch {told['epoch']}" if "epoch" in told else None


def _show(found: RoundDetail) -> None:
    out().print(f"round {found.index}: {found.state}" + (f" ({found.reason})" if found.reason else ""))
    out().print(f"{found.answered} of {found.asked} answered, {found.needed} wanted, {found.min_updates} needed")
    print_table(
        ["client", "state", "seconds", "bytes", "samples", "weight", "teacher", "last heard", "progress"],
        [
            [p.name, p.state, p.seconds, p.size, p.num_samples, p.weight, p.teacher_weight, p.heard_at, _progress(p)]
            for p in found.participants
        ],
    )


@round_app.command("list")
def list_rounds(federation: Ref, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List a federation's rounds with the reasons of those that published nothing."""
    with operator(url, token) as client:
        items = list(client.each(client.rounds, resolve(client, federation)))
    if as_json:
        print_json(items)
        return
    print_table(
        ["round", "id", "state", "answered", "lost", "accuracy", "reason"],
        [
            [r.index, r.id, r.state, f"{r.answered}/{r.asked}", r.lost, percent(r.metrics.get("accuracy")), r.reason]
            for r in items
        ],
    )


@round_app.command()
def show(round_id: str, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Show a round: who was asked, who answered, each client's weight."""
    with operator(url, token) as client:
        found = client.round(round_id)
    if as_json:
        print_json(found)
    else:
        _show(found)


@round_app.command()
def close(
    round_id: str,
    force: Annotated[bool, typer.Option("--force", help="Also with fewer than min_updates.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Fuse a round now with the updates that are here."""
    with operator(url, token) as client:
        found = client.close_round(round_id, force=force)
    if as_json:
        print_json(found)
    else:
        _show(found)


# --------------------------------------------------------------------------------------------------------------- models
@model_app.command("list")
def list_models(
    federation: Annotated[str | None, typer.Option(help="A federation's id or name.")] = None,
    prototype: Annotated[str | None, typer.Option(help="One of its prototypes.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List models, the oldest first; the current ones are what devices get."""
    with operator(url, token) as client:
        id_ = None if federation is None else resolve(client, federation)
        items = list(client.each(client.models, federation=id_, prototype=prototype))
    if as_json:
        print_json(items)
        return
    print_table(
        ["id", "role", "prototype", "round", "accuracy", "current"],
        [[m.id, m.role, m.prototype, m.round, percent(m.metrics.get("accuracy")), m.current] for m in items],
    )


@model_app.command()
def promote(
    model_id: str,
    federation: Annotated[str | None, typer.Option(help="For an imported model: which is to have it.")] = None,
    prototype: Annotated[str | None, typer.Option(help="For an imported model, where there are several.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Make a model what devices get next; a round that collects begins again."""
    with operator(url, token) as client:
        id_ = None if federation is None else resolve(client, federation)
        found = client.promote_model(model_id, federation=id_, prototype=prototype)
    if as_json:
        print_json(found)
    else:
        out().print(f"{found.id}: current model of {found.prototype}")


# ----------------------------------------------------------------------------------------------------------------- jobs
@job_app.command("list")
def list_jobs(
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
    if as_json:
        print_json(items)
        return
    print_table(
        ["id", "kind", "state", "attempt", "error", "detail"],
        [[j.id, j.kind, j.state, f"{j.attempt}/{j.max_attempts}", j.error, j.detail] for j in items],
    )


@job_app.command()
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
        found = client.retry_job(job_id, exclude=exclude or (), force=force)
    if as_json:
        print_json(found)
    else:
        out().print(f"{found.id}: {found.state}")


@job_app.command()
def cancel(job_id: str, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """End a job; its round fails and its federation pauses."""
    with operator(url, token) as client:
        found = client.cancel_job(job_id)
    if as_json:
        print_json(found)
    else:
        out().print(f"{found.id}: {found.state}")
