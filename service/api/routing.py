"""Routers of our own, and an application that has their routes.

FastAPI's `include_router` makes each route anew on an application's first request, and asks on every request whether
one was added since. Ours need no prefix or dependency of an application's, so they are made once a process.
"""

from collections.abc import Iterable

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute


def router_of(prefix: str = "", tag: str | None = None) -> APIRouter:
    """Return a router; its operations are called as their functions are, in generated clients, too.

    Args:
        prefix: what all its paths begin with.
        tag: under which its operations are documented.
    """
    tags = None if tag is None else [tag]
    return APIRouter(prefix=prefix, tags=list(tags or ()), generate_unique_id_function=_operation_id)


def _operation_id(route: APIRoute) -> str:
    return route.name


def add_routes(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Give an application the routes of routers, as they are."""
    app.router.routes.extend(route for router in routers for route in router.routes)
