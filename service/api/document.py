"""The OpenAPI document: what FastAPI makes of the routes, in the form that linters and generators of clients take.

Nothing of what is sent or answered is another for it. Pydantic describes a tuple by `prefixItems`, which tools do not
know; gives fields defaults that are objects, which they refuse; and names classes that nothing refers to.
"""

import json
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from contract import __version__
from contract.wire.problems import Problem
from service.api import cookies
from service.api.added import add_packages
from service.api.deps import BY_COOKIE
from service.api.problems import documented
from service.api.schemas import Schema, dicts, named

_DESCRIPTION = """Potstill distils many clients' models into one: devices train on data that never leaves them and
upload weights; the service averages or distils them, round by round.

**Start here**: sign in on the operators' page, or paste an operator's token. `POST /v1/federations` creates a
federation and shows its join token; devices enrol with it; `POST /v1/federations/{id}/start` begins. Every error is an
`application/problem+json` that says what to do."""

_TAGS = [
    {"name": "federations", "description": "Create, start and steer federations; enrol and revoke devices."},
    {"name": "devices", "description": "What a device calls; `client_sdk.train_and_push()` does all of it."},
    {"name": "uploads", "description": "Resumable uploads by the tus 1.0 protocol, for links that break."},
    {"name": "rounds", "description": "Who was asked, who answered, what came out."},
    {"name": "models", "description": "Every model with its lineage, and the weights themselves."},
    {"name": "predictions", "description": "Data sets, predicted by a model or by a round's ensemble."},
    {"name": "datasets", "description": "Server data: what teachers label, what accuracy is measured on."},
    {"name": "networks", "description": "Networks of one's own, as data: documents that `torch.export` wrote."},
    {"name": "jobs", "description": "The work behind the rounds, and the workers that do it."},
    {"name": "events", "description": "What happened, line by line, live."},
    {"name": "catalogue", "description": "Built-in recipes and architectures."},
    {"name": "tokens", "description": "Tokens of people and programs, and the caller's own."},
    {"name": "audit", "description": "Who did what, when and from where."},
    {"name": "health", "description": "Liveness and readiness."},
]
_LONGEST_DEFAULT, _COOKIE = 200, "cookieAuth"


def document_of(app: FastAPI) -> Schema:
    """Return the document of an application, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = _made(app)
    return app.openapi_schema


def _made(app: FastAPI) -> Schema:
    document = get_openapi(
        title="Potstill",
        version=__version__,
        description=_DESCRIPTION,
        contact={"name": "whoever runs this service"},
        license_info={"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        tags=_TAGS,
        routes=app.routes,
        servers=[{"url": ".", "description": "this service, whatever path it is under"}],  # beside the document
    )
    document["components"]["schemas"]["Problem"] = Problem.model_json_schema()
    add_packages(document)
    _tell_of_cookie(document, app)
    for operation in _operations(document):
        _problem_for_422(operation)
        _problem_for_429(operation)
    for schema in list(dicts(document)):
        for simplify in (_without_tuples, _without_large_defaults, _without_unsure_choices):
            simplify(schema)
    _leave_out_unused(document)
    return document


def _tell_of_cookie(document: Schema, app: FastAPI) -> None:
    """What people may do, the page does by a cookie."""
    taken = [route for route in app.routes if isinstance(route, APIRoute) and route.include_in_schema]
    for route in taken:
        if not BY_COOKIE & set(_calls(route.dependant)):
            continue
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            operation["security"] = [*operation.get("security", [{}]), {_COOKIE: []}]
    document["components"]["securitySchemes"][_COOKIE] = {
        "type": "apiKey",
        "in": "cookie",
        "name": cookies.name_of(app.state.services.settings),
        "description": "the operators' page, signed in by `POST /v1/session`; over TLS the name begins with "
        f"`__Host-` or `__Secure-`. What changes something needs `Sec-Fetch-Site: same-origin`, which browsers "
        f"send, or the header `{cookies.PAGE_HEADER}`. Programs send a token.",
    }


def _calls(dependant: Dependant) -> Iterator[Any]:
    yield dependant.call
    for each in dependant.dependencies:
        yield from _calls(each)


def _operations(document: Schema) -> Iterator[Schema]:
    for item in document["paths"].values():
        yield from item.values()


def _problem_for_422(operation: Schema) -> None:
    answer = operation.get("responses", {}).get("422")
    if answer is not None and "application/json" in answer.get("content", {}):
        operation["responses"]["422"] = documented("invalid-field")[422]


def _problem_for_429(operation: Schema) -> None:
    """Whoever shows a token is told to wait where too many came, or too many false ones from that address."""
    if operation.get("security"):
        operation["responses"].setdefault("429", documented("too-many-requests")[429])


def _without_tuples(schema: Schema) -> None:
    """A tuple is an array of so many items, of which each is one of those that the tuple has."""
    items = schema.pop("prefixItems", None)
    if items is None:
        return
    numbers = {each.get("type") for each in items} == {"integer", "number"}
    kinds = [{"type": "number"}] if numbers else [each for n, each in enumerate(items) if each not in items[:n]]
    schema["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _without_large_defaults(schema: Schema) -> None:
    """An object as a default is told in words: a field that is left out is that."""
    default = schema.get("default")
    if not isinstance(default, dict) or "in" in schema:
        return
    del schema["default"]
    text = json.dumps(default, ensure_ascii=False)
    told = f"default: `{text}`" if len(text) <= _LONGEST_DEFAULT else "default: the defaults of its fields"
    schema["description"] = "; ".join(filter(None, (schema.get("description"), told)))


def _without_unsure_choices(schema: Schema) -> None:
    """What no field tells apart may be both: a recipe by name alone is also a whole one of defaults."""
    if "oneOf" in schema and "discriminator" not in schema:
        schema["anyOf"] = schema.pop("oneOf")


def _leave_out_unused(document: Schema) -> None:
    schemas = document["components"]["schemas"]
    used: set[str] = set()
    found = named(document["paths"])
    while found:
        used |= found
        found = {name for each in found for name in named(schemas[each])} - used
    document["components"]["schemas"] = {name: schemas[name] for name in schemas if name in used}
