"""`potstill token`: tokens for people and programs."""

from typing import Annotated

import typer

from contract.wire.catalogue import TokenCreated, TokenRole
from potstill.commands.config import load_settings
from potstill.connection import Token, Url, operator
from potstill.console import Group, Json, out, print_json, print_table

app = typer.Typer(cls=Group, no_args_is_help=True, help="Tokens for operators and viewers.")


@app.command()
def create(
    name: Annotated[str, typer.Option(help="Who or what it is for.")],
    role: Annotated[TokenRole, typer.Option(help="viewer reads; operator may do everything")] = "viewer",
    local: Annotated[
        bool, typer.Option("--local", help="Write it into this machine's database, when the operator token is lost.")
    ] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Make a token and show it, once."""
    if local:
        made = _create_local(name, role)
    else:
        with operator(url, token) as client:
            made = client.create_token(name, role)
    if as_json:
        print_json(made)
    else:
        out().print(f"{made.role} token for {made.name} (shown this once): {made.token}")


def _create_local(name: str, role: TokenRole) -> TokenCreated:
    """Make a token without the API, with the rights of whoever may write the database."""
    settings = load_settings()
    from service.operations import tokens
    from service.persistence.engine import Database

    database = Database(settings)
    try:
        with database.write() as session:
            row = tokens.create(session, settings.key, name, role)
            return TokenCreated(**tokens.describe(row).model_dump(), token=tokens.secret_of(settings.key, row))
    finally:
        database.close()


@app.command("list")
def list_(url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List tokens, without their secrets."""
    with operator(url, token) as client:
        items = list(client.each(client.tokens))
    if as_json:
        print_json(items)
        return
    print_table(
        ["name", "id", "role", "created", "revoked"],
        [[i.name, i.id, i.role, i.created_at, i.revoked_at] for i in items],
    )


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(help="Id of the token, tok_...")], url: Url = None, token: Token = None
) -> None:
    """Revoke a token; it stops working at once."""
    with operator(url, token) as client:
        client.revoke_token(token_id)
    out().print(f"revoked {token_id}")
