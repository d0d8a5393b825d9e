"""`potstill federation spec`: what creates a federation like one that is there."""

from typing import Any

from contract.plugins import ELSEWHERE
from contract.recipes.presets import PRESETS
from contract.recipes.recipe import Recipe
from contract.wire.federations import Federation, FederationCreate
from potstill.commands.federation import Ref, resolve
from potstill.connection import Token, Url, operator
from potstill.console import print_json


def body_like(federation: Federation) -> FederationCreate:
    """Return the request that creates a federation like this one. Limits of its join token are not taken over."""
    told = federation.model_dump(mode="json", exclude={"join"})
    told["recipe"] = _recipe(federation.composition)
    body = {name: told[name] for name in FederationCreate.model_fields if name in told}
    return FederationCreate.model_validate(body, context=ELSEWHERE)


def _recipe(composition: Recipe) -> dict[str, Any]:
    """Return a preset with its changed parts as options, for only a preset may have its name; else the composition."""
    parts = composition.model_dump(mode="json")
    if composition.name not in PRESETS:
        return parts
    usual = PRESETS[composition.name].recipe.model_dump(mode="json")
    changed = {part: value for part, value in parts.items() if value != usual[part]}
    return {"name": composition.name, "options": changed}


def spec(federation: Ref, url: Url = None, token: Token = None) -> None:
    """Print the JSON body that creates a federation like this one, for `create --file`."""
    with operator(url, token) as client:
        found = client.federation(resolve(client, federation))
    print_json(body_like(found).model_dump(mode="json", exclude={"join"}))
