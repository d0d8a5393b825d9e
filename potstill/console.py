"""What commands share: tables for people, JSON for programs, errors as one line with a remedy."""

import codecs
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from potstill import exits

if TYPE_CHECKING:
    from pydantic import BaseModel

Item = TypeVar("Item")
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class CliError(Exception):
    """Something the user can mend; the message says how.

    Args:
        code: of `exits`.
    """

    def __init__(self, message: str, code: int = exits.HERE):
        super().__init__(message)
        self.code = code


def out() -> Console:
    """Return a console on today's stdout (tests replace it) that prints text as it is: a path may hold `[red]`."""
    terminal = sys.stdout.isatty()
    width = None if terminal else 200
    return Console(file=sys.stdout, soft_wrap=not terminal, width=width, highlight=False, markup=False, emoji=False)


def print_error(message: str) -> None:
    """Print one red line on stderr."""
    Console(file=sys.stderr, soft_wrap=True, highlight=False).print(Text(f"error: {message}", style="red"))


def _why_closed(error: Exception) -> str | None:
    """Return what to do where the database cannot be opened; a device has no module of the service's to ask."""
    engine = sys.modules.get("service.persistence.engine")
    return None if engine is None else engine.why_closed(error)


_PLAIN = {"–": "-", "—": "-", "…": "...", "→": "->", "×": "x", "±": "+-", "█": "#", "\N{REPLACEMENT CHARACTER}": "?"}


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def speak_plainly() -> None:
    """Let stdout and stderr write what they can and replace the rest: a terminal need not know UTF-8."""
    codecs.register_error("potstill", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="potstill")


def _message(error: Exception) -> str | None:
    """Return what to tell the user about an expected error, None for a bug."""
    from contract.packages import PluginError
    from contract.private import OpenToOthers
    from service.domain.errors import StartError

    if isinstance(error, CliError | OpenToOthers | PluginError | StartError):
        return str(error)
    closed = _why_closed(error)
    if closed is not None:
        return closed
    if isinstance(error, OSError):
        return None if error.filename is None else _of_file(error)
    from client_sdk.errors import PotstillError, TransportError, UntrustedCertificate

    if isinstance(error, TransportError) and not isinstance(error, UntrustedCertificate):
        return f"{error} Start one with: potstill up; name another with --url or POTSTILL_URL"
    return str(error) if isinstance(error, PotstillError) else None


def _of_file(error: OSError) -> str:
    remedy = "; run this as the user whose it is, or name another one" if isinstance(error, PermissionError) else ""
    return f"{os.fsdecode(error.filename)}: {error.strerror}{remedy}"


class Group(TyperGroup):
    """A command group in which an expected error is one line, or JSON with `--json`, and an exit code of `exits`."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        words = [*ctx._protected_args, *ctx.args]
        as_json = "--json" in words
        try:
            self._check_repeats(ctx, words)
            return super().invoke(ctx)
        except Exception as error:
            if as_json and hasattr(error, "format_message"):  # usage, as typer tells it to people
                _tell(error, error.format_message(), exits.USAGE, as_json)
                raise typer.Exit(exits.USAGE) from error
            message = _message(error)
            if message is None:
                raise
            code = exits.of(error)
            _tell(error, message, code, as_json)
            raise typer.Exit(code) from error

    def _check_repeats(self, ctx: Any, words: list[str]) -> None:
        """Refuse an option that is given twice and takes one value: the last one would win without a word.

        Raises:
            typer.BadParameter: naming it.
        """
        if not words or words[0].startswith("-"):
            return
        command, rest = self.get_command(ctx, words[0]), words[1:]
        if command is None or isinstance(command, TyperGroup):  # a group looks at its own commands
            return
        inner = command.context_class(command, info_name=words[0], parent=ctx, resilient_parsing=True)
        try:
            _, _, order = command.make_parser(inner).parse_args(list(rest))
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            return  # told better when it is parsed in earnest
        seen: set[str | None] = set()
        for parameter in order:
            if parameter.param_type_name == "option" and not parameter.multiple and not getattr(parameter, "count", 0):
                if parameter.name in seen:
                    raise typer.BadParameter(f"{parameter.opts[0]} is given twice; it takes one value", ctx=inner)
                seen.add(parameter.name)


def _tell(error: Exception, message: str, code: int, as_json: bool) -> None:
    """Say on stderr what went wrong."""
    if as_json:
        print(json.dumps(exits.document(error, message, code), indent=2, default=str), file=sys.stderr)
    else:
        print_error(message)


def confirm(question: str, yes: bool) -> None:
    """Ask before something that cannot be undone, unless `yes`.

    Raises:
        CliError: there is nobody to ask.
        typer.Abort: the answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CliError(f"there is no terminal to ask at ({question}): say --yes", exits.USAGE)
    typer.confirm(question, abort=True, err=True)


def _is_body(value: Any) -> "TypeGuard[BaseModel]":
    """Whether a value is a body of the contract, without a need for pydantic where there is none."""
    return hasattr(value, "model_dump_json")


def print_json(value: Any) -> None:
    """Print a body, or a list of bodies, as JSON."""
    if _is_body(value):
        text = value.model_dump_json(indent=2)
    elif isinstance(value, list):
        text = json.dumps([i.model_dump(mode="json") if _is_body(i) else i for i in value], indent=2)
    else:
        text = json.dumps(value, indent=2, default=str)
    print(text)


def show_one(found: Item, as_json: bool, tell: Callable[[Item], None]) -> None:
    """Print one thing: its body for programs, for people what `tell` prints of it."""
    if as_json:
        print_json(found)
    else:
        tell(found)


def show_list(items: list[Item], as_json: bool, columns: Sequence[str], row: Callable[[Item], Sequence[Any]]) -> None:
    """Print a list: the bodies for programs, for people a table with a `row` for each."""
    if as_json:
        print_json(items)
    else:
        print_table(columns, [row(item) for item in items])


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Print rows for people; numbers stand right."""
    table = Table(
        title=title, title_justify="left", header_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    rows = [list(row) for row in rows]
    for index, name in enumerate(columns):
        numeric = bool(rows) and all(_is_number(row[index]) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    out().print(table)
    if not rows:
        out().print("(none)", style="dim")


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"[+-]?[\d.]+( %)?|–|", value) is not None
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    return str(value)


def percent(value: float | None) -> str:
    """Return 0.9014 as '90.1 %'."""
    return "–" if value is None else f"{100 * value:.1f} %"


def size(count: int) -> str:
    """Return bytes as people read them."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}" if unit != "B" else f"{count} B"


def parse_options(pairs: Iterable[str], what: str = "--option") -> dict[str, Any]:
    """Turn ``["link=sigmoid", "schedule.epochs=10"]`` into a flat dict; values are JSON, or else plain text.

    Raises:
        CliError: a pair without '='.
    """
    from contract.json_text import RepeatedKey, read_json

    options: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise CliError(f"{what} {pair!r} is not of the form key=value, for example {what} schedule.epochs=10")
        try:
            options[key] = read_json(text)
        except RepeatedKey as error:
            raise CliError(f"{what} {key}: {error}") from None
        except ValueError:
            options[key] = text
    return options


def read_object(file: Path, whose: str) -> dict[str, Any]:
    """Return the JSON object that a file holds.

    Args:
        file: where.
        whose: what the object should be, for who has another file.

    Raises:
        CliError: it cannot be read, or is none.
    """
    from contract.json_text import RepeatedKey, read_json

    try:
        tree = read_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}") from error
    except RepeatedKey as error:
        raise CliError(f"{file}: {error}") from error
    except ValueError as error:
        raise CliError(f"{file} is not JSON: {error}") from error
    if not isinstance(tree, dict):
        raise CliError(f"{file} holds no JSON object; it should be {whose}")
    return tree


def nest(flat: dict[str, Any]) -> dict[str, Any]:
    """Turn ``{"optimizer.lr": 0.1}`` into ``{"optimizer": {"lr": 0.1}}``."""
    tree: dict[str, Any] = {}
    for dotted, value in flat.items():
        *path, last = dotted.split(".")
        place = tree
        for key in path:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise CliError(f"{dotted!r} lies inside {key!r}, which has a value of its own")
        place[last] = value
    return tree


def printable(text: str) -> str:
    """Return a line that cannot steer the terminal: what devices say may hold escape codes."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
