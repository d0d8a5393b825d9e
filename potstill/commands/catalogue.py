"""`potstill recipe` and `potstill architecture`: what a federation can name."""

from collections.abc import Iterator
from typing import Any

import typer

from contract.wire.catalogue import RecipeInfo
from potstill import exits
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Group, Json, out, print_table, show_list, show_one

recipe_app = typer.Typer(cls=Group, no_args_is_help=True, help="Look at the built-in recipes.")
architecture_app = typer.Typer(cls=Group, no_args_is_help=True, help="Look at the networks that can be named.")


@recipe_app.command("list")
def list_recipes(url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List the built-in recipes and what each is."""
    with operator(url, token) as client:
        items = client.recipes()
    show_list(items, as_json, ["name", "source", "summary"], lambda r: [r.name, r.source, r.summary])


@recipe_app.command("show")
def show_recipe(name: str, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Show a recipe's parts and their options, with the defaults, and the devices' training."""
    with operator(url, token) as client:
        known = {recipe.name: recipe for recipe in client.recipes()}
    if name not in known:
        raise CliError(f"no recipe is called {name!r}; there are {', '.join(sorted(known))}", exits.MISSING)
    show_one(known[name], as_json, _tell)


def _lines(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _lines(inner, f"{path}.{name}" if path else name)
    else:
        yield path, ", ".join(map(str, value)) if isinstance(value, list) else value


def _tell(recipe: RecipeInfo) -> None:
    out().print(f"{recipe.name}: {recipe.summary} ({recipe.source})")
    print_table(["recipe", ""], _lines(recipe.composition.model_dump(mode="json", exclude={"name"}), ""))
    print_table(["local", ""], _lines(recipe.local.model_dump(mode="json"), ""))
    for choice in recipe.choices:
        out().print(f"chosen where the paper is silent: {choice}")
    for added in recipe.added:
        out().print(f"{added.slot} can be {added.kind!r}, of the package {added.package}: {added.summary}")


@architecture_app.command("list")
def list_architectures(url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List networks: a prototype names a classifier, a recipe may name a discriminator and a generator."""
    with operator(url, token) as client:
        items = client.architectures()
    show_list(
        items,
        as_json,
        ["name", "role", "on the service", "options", "summary"],
        lambda a: [a.name, a.role, a.server_side, ", ".join(a.options.get("properties", {})), a.summary],
    )
