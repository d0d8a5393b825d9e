"""`potstill federation start | pause | resume | cancel | rollback | plan`: how an operator lets one go on, or not."""

from typing import Annotated, Any

import typer
from pydantic import ValidationError

from contract.faults import faults_of
from contract.wire.changes import PlanChange
from contract.wire.federations import Federation
from potstill.commands.federation import Ref, resolve
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Json, confirm, nest, out, parse_options, print_table, show_one


def _tell(found: Federation) -> None:
    out().print(f"{found.name}: {found.state}, round {found.round} of {found.rounds_total}")


def start(federation: Ref, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Start a federation: models are initialised, then rounds begin."""
    with operator(url, token) as client:
        show_one(client.start_federation(resolve(client, federation)), as_json, _tell)


def pause(federation: Ref, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Hold a federation: no round opens or closes."""
    with operator(url, token) as client:
        show_one(client.pause_federation(resolve(client, federation)), as_json, _tell)


def resume(federation: Ref, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Go on; a round that has failed is given up."""
    with operator(url, token) as client:
        show_one(client.resume_federation(resolve(client, federation)), as_json, _tell)


def cancel(
    federation: Ref,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Cancel a federation for good; its devices are told that it is over."""
    with operator(url, token) as client:
        id_ = resolve(client, federation)
        confirm(f"cancel {federation}? It does not go on from there, and its devices stop", yes)
        show_one(client.cancel_federation(id_), as_json, _tell)


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
        made = {} if as_json else {name: client.model(ref.id).round for name, ref in found.models.items()}
    show_one(found, as_json, _tell)
    for name, index in made.items():
        out().print(f"devices get {name} as it was {f'after round {index}' if index else 'before the first round'}")


def plan(
    federation: Ref,
    local: Annotated[list[str] | None, typer.Option(help="Local training key=value, such as epochs=2.")] = None,
    prototype: Annotated[
        list[str] | None, typer.Option(help="Of one prototype's clients name.key=value, such as small.batch_size=16.")
    ] = None,
    round_option: Annotated[
        list[str] | None, typer.Option(help="Field of rounds key=value, such as total=40 or deadline_seconds=600.")
    ] = None,
    schedule: Annotated[
        list[str] | None, typer.Option(help="Of the distillation key=value: epochs, steps, batch_size, lr.")
    ] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Show the plan that the next round has, or change it; a round that has opened keeps its own."""
    given = {
        "local": nest(parse_options(local or [], "--local")),
        "prototypes": nest(parse_options(prototype or [], "--prototype")),
        "rounds": nest(parse_options(round_option or [], "--round-option")),
        "schedule": nest(parse_options(schedule or [], "--schedule")),
    }
    told = {name: value for name, value in given.items() if value}
    with operator(url, token) as client:
        found = client.federation(resolve(client, federation))
        if told:
            found = client.change_plan(found.id, _change(told))
    show_one(found, as_json, _show_plan)


def _change(told: dict[str, Any]) -> PlanChange:
    try:
        return PlanChange.model_validate(told)
    except ValidationError as error:
        where, said = faults_of(error, told)[0]
        raise CliError(f"{where}: {said}" if where else said) from None


def _show_plan(found: Federation) -> None:
    distil = found.composition.distil
    parts: dict[str, Any] = {"local": found.local.model_dump(mode="json", exclude_none=True)}
    for each in found.prototypes:
        if each.local is not None:
            parts[f"prototypes.{each.name}"] = each.local.model_dump(mode="json", exclude_none=True)
    parts["rounds"] = found.rounds.model_dump(mode="json", exclude_none=True)
    if distil is not None:
        parts["schedule"] = distil.schedule.model_dump(mode="json", exclude_none=True)
    rows = [[f"{part}.{name}", _brief(value)] for part, plan in parts.items() for name, value in plan.items()]
    print_table([found.name, "next round"], rows)


def _brief(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    rest = ", ".join(f"{name} {_brief(each)}" for name, each in value.items() if name != "kind")
    return f"{value['kind']} ({rest})" if "kind" in value and rest else str(value.get("kind", rest))
