"""Choices of installed packages in the OpenAPI document: their schemas, and their places beside potstill's own.

Unions are found in the document that was made, by the choices they refer to: pydantic writes a slot's only choice into
its field where a function describes the field, and the document without packages would be another.
"""

import itertools
import re
from collections.abc import Collection, Iterator

from pydantic.json_schema import models_json_schema

from contract import bounds, plugins
from contract.choices import Choice, choices_of, kind_of
from service.api.schemas import REFERENCE, Schema, dicts, named

References = dict[type[Choice], str]
_WHOSE = "whose it is, name and version; another one than is installed is refused"


def add_packages(document: Schema) -> None:
    """Add what the packages that are here offer; without any, the document stays as it is."""
    schemas, added = document["components"]["schemas"], References()
    for package, choices in itertools.groupby(sorted(plugins.installed(), key=_whose), _whose):
        added |= _add(schemas, package, list(choices))
    for union, slot in list(_unions(document)) if added else ():
        _widen(union, slot, {each: place for each, place in added.items() if issubclass(each, slot)})


def _whose(choice: type[Choice]) -> str:
    return choice.packaged


# ------------------------------------------------------------------------------------------------------------- schemas
def _add(schemas: Schema, package: str, choices: list[type[Choice]]) -> References:
    """Add the schemas of a package's choices, and of what their options are made of; return where the choices' are."""
    places, found = models_json_schema([(each, "validation") for each in choices], ref_template=f"{REFERENCE}{{model}}")
    made: dict[str, Schema] = found["$defs"]
    ours = {name for name, schema in made.items() if schemas.get(name) == schema}
    while others := {name for name in ours if not named(made[name]) <= ours}:
        ours -= others  # they only read alike: what they refer to is the package's
    renamed: dict[str, str] = {}
    for name in made:
        if name not in ours:
            renamed[name] = _free(name, package, schemas.keys() | set(renamed.values()))
    for schema in dicts([made[name] for name in renamed]):
        for key, text in schema.items():
            if isinstance(text, str) and text.startswith(REFERENCE):
                schema[key] = _moved(text, renamed)
    for name, new in renamed.items():
        schemas[new] = made[name] if name == new else made[name] | {"title": new}
    added = {each: _moved(places[each, "validation"]["$ref"], renamed) for each in choices}
    for place in added.values():
        _tell(schemas[place.removeprefix(REFERENCE)], package)
    return added


def _free(name: str, package: str, taken: Collection[str]) -> str:
    """Return a name that nothing has: the class's, else with the package's before it, else with a number after that."""
    name = name.rpartition("__")[2] or name  # pydantic puts the module before a name that two classes have
    words = re.findall(r"[A-Za-z0-9]+", package.partition(" ")[0])
    prefixed = "".join(word[:1].upper() + word[1:] for word in words) + name
    names = itertools.chain([name, prefixed], (f"{prefixed}{number}" for number in itertools.count(2)))
    return next(each for each in names if each not in taken)


def _moved(reference: str, renamed: dict[str, str]) -> str:
    name = reference.removeprefix(REFERENCE)
    return REFERENCE + renamed.get(name, name)


def _tell(schema: Schema, package: str) -> None:
    """Say whose a choice is, and that it may be asked for so."""
    schema["description"] = "\n\n".join(filter(None, (schema.get("description"), f"Of the package {package}.")))
    whose = {"type": "string", "maxLength": max(bounds.TEXT, len(package)), "title": "Package", "description": _WHOSE}
    schema.setdefault("properties", {})["package"] = whose


# -------------------------------------------------------------------------------------------------------------- unions
def _unions(document: Schema) -> Iterator[tuple[Schema, type[Choice]]]:
    """Yield the places of slots that packages may add to, each with the class that its choices are below."""
    slots = {
        frozenset(REFERENCE + each.__name__ for each in choices_of(slot) if each.is_own()): slot
        for slot in plugins.OPEN.classes
    }
    for schema in dicts(document):
        members = schema.get("oneOf", [schema] if "$ref" in schema else [])
        slot = slots.get(frozenset(each.get("$ref", "") for each in members))
        if slot is not None:
            yield schema, slot


def _widen(union: Schema, slot: type[Choice], added: References) -> None:
    """Add choices to a place; where it had only one, it is a union from here on."""
    if not added:
        return
    if "oneOf" not in union:
        [only] = [each for each in choices_of(slot) if each.is_own()]
        place = union.pop("$ref")
        union["oneOf"] = [{"$ref": place}]
        union["discriminator"] = {"propertyName": "kind", "mapping": {kind_of(only): place}}
    for choice, place in added.items():
        union["oneOf"].append({"$ref": place})
        union["discriminator"]["mapping"][kind_of(choice)] = place
