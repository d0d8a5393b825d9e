"""`potstill federation draft`: what a federation would be, before it is created."""

from pathlib import Path
from typing import Annotated

import typer

from contract.wire.federations import FederationDraft
from potstill.commands.federation import body, show_notes
from potstill.connection import Token, Url, operator
from potstill.console import Json, out, read_object, show_one


def draft(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON body of POST /v1/federations.")],
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Say what a federation would be, and what would be left out or changed, and why; change nothing."""
    spec = body(read_object(file, "the body of POST /v1/federations"))
    with operator(url, token) as client:
        show_one(client.draft_federation(spec), as_json, _tell)


def _tell(made: FederationDraft) -> None:
    out().print(f"{made.name} can be created: {made.composition.name}, {made.rounds.total} rounds")
    show_notes(made.notes)
