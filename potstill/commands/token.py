"""`potstill token`: tokens for people and programs."""

import os
from typing import Annotated

import typer

from contract.wire.catalogue import TokenCreated, TokenRole
from potstill.commands.config import load_settings
from potstill.connection import Token, Url, operator
from potstill.console import Group, Json, out, show_list, show_one
from potstill.home import Home

app = typer.Typer(cls=Group, no_args_is_help=True, help="Tokens for operators and viewers.")


@app.command()
def create(
    name: Annotated[str, typer.Option(help="Who or what it is for.")],
    role: Annotated[TokenRole, typer.Option(help="viewer reads; operator may do everything")] = "viewer",
    days: Annotated[float | None, typer.Option(min=0.001, help="Life in days; without it, no end.")] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Write it into this machine's database, when the operator token is lost.")
    ] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Make a token and show it, once."""
    if local:
        made = _create_local(name, role, seconds(days))
    else:
        with operator(url, token) as client:
            made = client.create_token(name, role, valid_seconds=seconds(days))
    show_one(made, as_json, _tell)


def _tell(made: TokenCreated) -> None:
    out().print(f"{made.role} token for {made.name} (shown this once): {made.token}")


def seconds(days: float | None) -> int | None:
    """Return days as whole seconds, as the service takes them."""
    return None if days is None else max(60, round(days * 86_400))


def _create_local(name: str, role: TokenRole, valid_seconds: int | None) -> TokenCreated:
    """Make a token without the API, with the rights of whoever may write the database. The audit log has it."""
    settings = load_settings()
    from service.operations.access import tokens
    from service.operations.ledger import audit
    from service.persistence import migrate

    with migrate.checked(settings) as database, audit.by_command(database) as session:
        row = tokens.create(session, settings.key, name, role, valid_seconds)
        return TokenCreated(**tokens.describe(row).model_dump(), token=tokens.secret_of(settings.keys, row))


@app.command("list")
def list_(url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List tokens, without their secrets."""
    with operator(url, token) as client:
        items = list(client.each(client.tokens))
    show_list(
        items,
        as_json,
        ["name", "id", "role", "state", "created", "last used", "expires"],
        lambda t: [t.name, t.id, t.role, t.state, t.created_at, t.last_used_at, t.expires_at],
    )


@app.command()
def rotate(url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Replace the token in use. The new one is shown once; the one before works until the new one is first used."""
    home = Home()
    with operator(url, token) as client:
        fresh = client.rotate_token()
    if token is None and "POTSTILL_TOKEN" not in os.environ and home.read(home.token_file):
        home.write(home.token_file, fresh.token)
    show_one(fresh, as_json, lambda fresh: out().print(f"new token (shown this once): {fresh.token}"))


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(help="Id of the token, tok_...")], url: Url = None, token: Token = None
) -> None:
    """Revoke a token; it stops working at once."""
    with operator(url, token) as client:
        client.revoke_token(token_id)
    out().print(f"revoked {token_id}")
