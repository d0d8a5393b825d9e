"""Imports between packages, rooms and folders, as arrows: how many there are, how many go up or round."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from tools.house.source import House

FLOORS: dict[str, list[set[str]]] = {
    "": [
        {"experiments", "tools"},
        {"potstill"},
        {"worker"},
        {"service", "client_sdk"},
        {"contract"},
    ],
}
"""From the top down. Below a package, the floors are those of its import rule in pyproject.toml, if it has one."""

LOOKED_AT = ("", "service", "service.operations", "worker", "worker.pipeline", "client_sdk", "contract", "potstill")


@dataclass(frozen=True)
class Arrows:
    """The imports between the children of a package ('' for the packages at the top level)."""

    package: str
    rooms: int
    arrows: int
    floors: int
    up: tuple[str, ...]
    round: tuple[str, ...]


def arrows(house: House) -> list[Arrows]:
    """Return the arrows within each package that is looked at."""
    said = FLOORS | _floors_said(house)
    return [_arrows(house, package, said.get(package, [])) for package in LOOKED_AT]


def _floors_said(house: House) -> dict[str, list[set[str]]]:
    """Return the floors of the import rules of kind `layers`, by container."""
    rules = tomllib.loads((house.root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return {
        container: [{name.strip("( )") for name in layer.replace(":", "|").split("|")} for layer in rule["layers"]]
        for rule in rules
        if rule["type"] == "layers"
        for container in rule.get("containers", [])
    }


def _arrows(house: House, package: str, floors: list[set[str]]) -> Arrows:
    graph: dict[str, set[str]] = {}
    for module in house.below(package) if package else house.modules.values():
        here = _child(package, module.name)
        if here:
            graph.setdefault(here, set())
            reached = (_child(package, name) for name in house.imports(module))
            graph[here] |= {child for child in reached if child and child != here}
    pairs = sorted((here, there) for here, targets in graph.items() for there in targets)
    height = {room: -number for number, floor in enumerate(floors) for room in floor}
    up = [(a, b) for a, b in pairs if a in height and b in height and height[b] > height[a]]
    ring = [(a, b) for a, b in pairs if a in _below(graph, b)]
    return Arrows(package, len(graph), len(pairs), _depth(graph), _said(up), _said(ring))


def _child(package: str, module: str) -> str | None:
    """Return which child of a package a module is in; None for the package itself and for others."""
    if not package:
        return module.partition(".")[0]
    return module[len(package) + 1 :].partition(".")[0] if module.startswith(f"{package}.") else None


def _below(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for each in graph.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def _depth(graph: Mapping[str, set[str]]) -> int:
    """Return how many floors there are: the longest way down, 0 where a way goes round."""
    known: dict[str, int] = {}

    def depth(room: str, above: frozenset[str]) -> int:
        if room in above:
            raise RecursionError
        if room not in known:
            known[room] = 1 + max((depth(each, above | {room}) for each in graph.get(room, ())), default=0)
        return known[room]

    try:
        return max((depth(room, frozenset()) for room in graph), default=0)
    except RecursionError:
        return 0


def _said(pairs: list[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{a} -> {b}" for a, b in pairs)
