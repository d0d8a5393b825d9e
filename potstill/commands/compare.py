"""`potstill compare`: federations and simulations side by side."""

from pathlib import Path
from typing import Annotated

import typer

from contract.installation import install
from contract.wire.report import FederationReport
from potstill.commands.federation import resolve
from potstill.comparing import tables
from potstill.comparing.sides import files_of, read, sides_of
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Json, print_json, print_table


def compare(
    of: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...", help="Federations by id or name, report.json of simulations, or their folders."
        ),
    ],
    target: Annotated[
        list[float] | None,
        typer.Option(help="What it took to reach this accuracy, or other figure, first; several do."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Also write the table: .csv, .json or .md.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw curves over rounds, bytes and seconds: .png or .svg.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Compare federations and simulations: figures, costs, and the parts of recipe and plan that are not the same."""
    told = tables.compare(sides_of(_reports(of, url, token)), target)
    if output is not None:
        tables.write(told, output)
    if plot is not None:
        _plot(told, plot)
    if as_json:
        print_json(tables.as_data(told))
        return
    print_table(*tables.figures(told), title="on the test set, and bytes of devices' files")
    if told.targets:
        print_table(*tables.reached(told), title="until it was first reached")
    print_table(*tables.unlike(told), title="what differs")
    for missing in (side.name for side in told.sides if not side.report.parts):
        typer.echo(f"{missing}: its report says nothing of its parts; make it again to see them")


def _reports(of: list[str], url: str | None, token: str | None) -> list[FederationReport]:
    """Return the reports of all that is named, in its order; a service is asked only where something is no file."""
    found: list[FederationReport] = []
    for ref in of:
        place = Path(ref)
        if place.exists():
            found += [read(file) for file in files_of(place)]
        elif place.suffix == ".json" or "/" in ref:
            raise CliError(f"there is no file or folder {ref}")
        else:
            with operator(url, token) as client:
                found.append(client.report(resolve(client, ref)))
    return found


def _plot(told: tables.Comparison, path: Path) -> None:
    try:
        from potstill.comparing.picture import plot

        plot(told.sides, path)
    except ModuleNotFoundError as error:
        raise CliError(f"{error.name} is not installed; {install('demo')}") from error
