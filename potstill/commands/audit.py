"""`potstill audit`: who did what, and whether the log is whole."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from contract.audit import first_break
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Group, Json, out, print_json, show_list

app = typer.Typer(cls=Group, no_args_is_help=True, help="The audit log: who did what, when and from where.")


@app.command("list")
def list_(
    actor: Annotated[str | None, typer.Option(help="Id or name of the token that acted.")] = None,
    action: Annotated[str | None, typer.Option(help="Such as token.create; 'token.' for all of them.")] = None,
    target: Annotated[str | None, typer.Option(help="Id of what was acted on.")] = None,
    federation: Annotated[str | None, typer.Option(help="Id of a federation.")] = None,
    outcome: Annotated[str | None, typer.Option(help="done or refused")] = None,
    hours: Annotated[float | None, typer.Option(min=0.01, help="Only the last so many hours.")] = None,
    last: Annotated[int, typer.Option(min=1, max=100_000, help="So many rows at most.")] = 50,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List the log, the newest row first."""
    since = None if hours is None else datetime.now(UTC) - timedelta(hours=hours)
    filters: dict[str, Any] = {
        "actor": actor,
        "action": action,
        "target": target,
        "federation": federation,
        "outcome": outcome,
        "since": since,
    }
    with operator(url, token) as client:
        items = []
        for item in client.each(client.audit, limit=min(last, 500), **filters):
            items.append(item)
            if len(items) >= last:
                break
    show_list(
        items,
        as_json,
        ["#", "when", "who", "role", "from", "what", "on", "outcome", "more"],
        lambda i: [i.seq, i.at, i.actor_name, i.role, i.address, i.action, i.target, i.outcome, _short(i.detail)],
    )


def _short(detail: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in detail.items())


@app.command()
def verify(
    expect: Annotated[
        str | None, typer.Option(metavar="SEQ:HASH", help="A row as noted elsewhere, which must still be there so.")
    ] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Compute the chain of hashes anew over the whole log; exit code 1 when a row was changed or is missing."""
    number, _, noted = (expect or "").partition(":")
    if expect is not None and not (number.isdecimal() and len(noted) == 64):
        raise CliError(f"--expect {expect!r}: give number and hash of a row, such as 120:9f86d0...")
    with operator(url, token) as client:
        rows = [item.chained() for item in client.each(client.audit, limit=500, oldest_first=True)]
    broken = first_break(rows)
    if broken is not None:
        raise CliError(f"row {broken[0]} {broken[1]}")
    if expect is not None and not any(row["seq"] == int(number) and row["hash"] == noted for row in rows):
        raise CliError(f"row {number} is not there with the hash that was noted: the log was written anew, or is gone")
    newest = rows[-1] if rows else None
    if as_json:
        print_json({"rows": len(rows), "seq": newest and newest["seq"], "hash": newest and newest["hash"]})
    elif newest is None:
        out().print("the log is empty")
    else:
        out().print(f"{len(rows)} rows, none changed or missing; note this elsewhere: {newest['seq']}:{newest['hash']}")
