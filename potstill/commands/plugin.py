"""`potstill plugin`: choices of other packages on this machine, and whether they are sound."""

from pathlib import Path
from typing import Annotated, Any

import typer

from contract import plugins
from contract.choices import Choice, described, kind_of
from contract.packages import PluginError
from potstill import exits
from potstill.console import CliError, Group, Json, out, print_json, print_table

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Look at choices of other packages on this machine, and check them."
)


@app.command("list")
def list_plugins(as_json: Json = False) -> None:
    """List the weightings, fuse rules and objectives that packages installed here add, and what cannot be used."""
    rows: list[dict[str, Any]] = [
        {"slot": each.slot, "kind": kind_of(each), "package": each.packaged, "summary": described(each).split("\n")[0]}
        for each in plugins.installed()
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(["slot", "kind", "package", "summary"], [list(row.values()) for row in rows])
    try:
        plugins.check()
    except PluginError as error:
        raise CliError(str(error)) from error


@app.command()
def check(
    file: Annotated[
        Path | None, typer.Argument(help="Python file with choices, as for simulate --plugin; default: all installed.")
    ] = None,
) -> None:
    """Run each choice in a tiny federation: finite, the same again, whatever the order of clients. Exit 3 if not."""
    from potstill.simulate.checking import Unsound
    from potstill.simulate.checking import check as try_out

    found = take(file) if file is not None else _installed()
    wrong = 0
    for each in found:
        try:
            try_out(_default(each))
        except Unsound as error:
            wrong += 1
            out().print(str(error), style="red")
        else:
            out().print(f"{each.slot} {kind_of(each)!r} of {each.packaged}: sound")
    if wrong:
        raise typer.Exit(exits.WRONG)


def take(file: Path) -> list[type[Choice]]:
    """Take in the choices of a Python file.

    Raises:
        CliError: it cannot be run, or a choice of it cannot be taken in.
    """
    try:
        return plugins.take_file(file)
    except PluginError as error:
        raise CliError(str(error)) from error


def _installed() -> list[type[Choice]]:
    try:
        plugins.check()
    except PluginError as error:
        raise CliError(str(error)) from error
    if not plugins.installed():
        raise CliError("no package here adds a choice; name a Python file (docs/extending.md)")
    return plugins.installed()


def _default(choice: type[Choice]) -> Choice:
    try:
        return choice.model_validate({})
    except ValueError as error:
        what = f"{choice.slot} {kind_of(choice)!r}: an option has no default; check it in a test of yours"
        raise CliError(f"{what}, with potstill.simulate.checking.check") from error
