"""How many product files know a choice: those that name its class, or compare something's kind with its own.

That is how many a new one of its sort would touch.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tools.house.source import House, Module

DECLARED_IN = ("contract.recipes", "contract.local")
PRESETS = ("contract/recipes/rows/", "contract/recipes/presets.py")
"""A recipe uses choices as its operator does; a new choice needs none."""


RULE = re.compile(r"(Fuse|Weigh|Members)[A-Z]|(?!Objective).*Objective$")
"""What is added most often: fuse rules, weightings, members rules, clients' objectives."""


@dataclass(frozen=True)
class Choice:
    """An options class with a `kind` of its own, and the files that know it."""

    name: str
    kind: str
    files: tuple[str, ...]


def choices(house: House) -> list[Choice]:
    """Return every choice of the contract, those that most files know first."""
    modules = [m for m in house.product if not str(m.path.as_posix()).startswith(PRESETS)]
    known = {module.name: _mentions(module) for module in modules}
    found = []
    for module in (module for package in DECLARED_IN for module in house.below(package)):
        for name, kind in _declared(module):
            files = [str(m.path) for m in modules if name in known[m.name][0] or kind in known[m.name][1]]
            found.append(Choice(name, kind, tuple(sorted({*files, str(module.path)}))))
    return sorted(found, key=lambda each: (-len(each.files), each.name))


def _declared(module: Module) -> Iterator[tuple[str, str]]:
    """Yield (class, kind) of each class that says ``kind: Literal["..."] = "..."``."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and ast.unparse(field.target) == "kind":
                    value = field.value
                    if isinstance(value, ast.Constant) and ast.unparse(field.annotation) == f"Literal[{value.value!r}]":
                        yield node.name, str(value.value)


@cache
def _mentions(module: Module) -> tuple[frozenset[str], frozenset[str]]:
    """Return the identifiers of a module, and the strings in statements that speak of a kind."""
    names, strings = set(), set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names |= {node.name, node.asname or node.name}
        if isinstance(node, (ast.Compare, ast.BinOp, ast.Dict, ast.match_case)):
            strings |= _kinds(node)
    return frozenset(names), frozenset(strings)


def _kinds(node: ast.AST) -> set[str]:
    """Return the strings beside something that is called a kind."""
    inner = list(ast.walk(node))
    strings = {each.value for each in inner if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    words = {each.id for each in inner if isinstance(each, ast.Name)}
    words |= {each.attr for each in inner if isinstance(each, ast.Attribute)}
    return strings - {"kind"} if any("kind" in word for word in (*words, *strings)) else set()
