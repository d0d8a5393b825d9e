"""How a command finds the service: --url and --token, POTSTILL_URL and POTSTILL_TOKEN, or the home folder's files."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from potstill import exits
from potstill.console import CliError
from potstill.home import DEFAULT_URL, Home

if TYPE_CHECKING:
    from client_sdk import OperatorClient

Url = Annotated[str | None, typer.Option("--url", envvar="POTSTILL_URL", help="Where the service is.")]
Token = Annotated[
    str | None,
    typer.Option("--token", help="An operator's or viewer's token; better in POTSTILL_TOKEN than on the command line."),
]


def find_url(url: str | None) -> str:
    """Return the service's address without a slash at the end."""
    return (url or os.environ.get("POTSTILL_URL") or Home().read(Home().url_file) or DEFAULT_URL).rstrip("/")


def operator(url: str | None = None, token: str | None = None) -> "OperatorClient":
    """Return a client for the service that is meant.

    Raises:
        CliError: there is no token.
    """
    from client_sdk import OperatorClient

    home = Home()
    secret = token or os.environ.get("POTSTILL_TOKEN") or home.read(home.token_file)
    if not secret:
        raise CliError(
            f"no token: set POTSTILL_TOKEN, or run this where the service's folder is ({home.token_file} is not there)",
            exits.TOKEN,
        )
    return OperatorClient(find_url(url), secret, retries=2)
