"""`potstill federation retention|delete`, `potstill client forget`: what is kept of a federation, and what is not."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from contract.wire.erasure import Forgotten
from contract.wire.retention import Retention
from potstill import exits
from potstill.commands.client import DeviceRef
from potstill.commands.federation import Ref, resolve
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Json, confirm, out, print_json, print_table, show_one


def _count(text: str | None, option: str) -> int | str | None:
    if text is None or text == "all":
        return text
    if not text.isascii() or not text.isdigit():
        raise CliError(f"{option} {text!r} is neither a count nor 'all'")
    return int(text)


def retention(
    federation: Ref,
    updates: Annotated[str | None, typer.Option(help="Published rounds whose updates stay: a count, or all.")] = None,
    models: Annotated[str | None, typer.Option(help="Published rounds whose models stay: a count, or all.")] = None,
    ensembles: Annotated[str | None, typer.Option(help="Rounds whose ensembles stay: a count, or all.")] = None,
    predictions: Annotated[int | None, typer.Option(min=1, help="Predictions whose files stay.")] = None,
    days: Annotated[float | None, typer.Option(min=0, help="Days after the end until the rest goes.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Show what is kept of a federation, or change it; what is no longer kept is removed at once."""
    wanted: dict[str, Any] = {"updates": _count(updates, "--updates"), "models": _count(models, "--models")}
    wanted |= {"ensembles": _count(ensembles, "--ensembles"), "predictions": predictions, "days": days}
    changes = {name: value for name, value in wanted.items() if value is not None}
    with operator(url, token) as client:
        id_ = resolve(client, federation)
        plan = client.federation(id_).retention
        if changes:
            before = (plan or Retention()).model_dump()
            plan = client.change_retention(id_, Retention.model_validate(before | changes))
    if as_json:
        print_json(plan or {})
    elif plan is None:
        out().print("what the service keeps of federations that do not say it: POTSTILL_RETENTION there")
    else:
        print_table(["what", "kept"], [[name, value] for name, value in plan.model_dump().items()])


def delete(
    federation: Ref,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Delete a federation that has ended, with its clients' data, rounds and models."""
    with operator(url, token) as client:
        id_ = resolve(client, federation)
        confirm(f"delete {federation} with all its models for good?", yes)
        client.delete_federation(id_)
    out().print(f"deleted {federation}")


def forget(
    federation: Ref,
    device: DeviceRef,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Revoke a device and delete what it sent; say which models it is part of."""
    with operator(url, token) as service:
        id_ = resolve(service, federation)
        ids = {each.id for each in service.each(service.clients, id_) if device in (each.id, each.name)}
        if not ids:
            raise CliError(
                f"there is no device {device!r} in {federation}; potstill client list shows them", exits.MISSING
            )
        told = [service.forget_client(id_, each) for each in sorted(ids)]
    show_one(told, as_json, _tell)


def _tell(told: Sequence[Forgotten]) -> None:
    for each in told:
        gone = each.deleted
        out().print(
            f"deleted {gone.updates} updates, {gone.discriminators} discriminators, {gone.generators} generators of "
            f"{each.client_id}: {gone.bytes} bytes"
        )
        if each.models:
            out().print(f"part of {', '.join(each.models)}, and of {len(each.descendants)} models of later rounds")
