"""`potstill federation start | pause | resume | cancel | rollback`: how an operator lets one go on, or not."""

from typing import Annotated

import typer

from contract.wire.federations import Federation
from potstill.commands.federation import Ref, resolve
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Json, confirm, out, show_one


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
