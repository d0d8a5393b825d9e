"""How long files and functions are, how many settings there are."""

import ast
from dataclasses import dataclass
from statistics import median

from tools.house.source import Function, House

SETTINGS = ("service.config", "Settings")


@dataclass(frozen=True, order=True)
class Sized:
    """A file or a function and its lines."""

    lines: int
    where: str


def files(house: House) -> list[Sized]:
    """Return all files, the longest first."""
    return sorted((Sized(module.lines, str(module.path)) for module in house.modules.values()), reverse=True)


def functions(house: House) -> list[Sized]:
    """Return all functions and methods, the longest first; decorators do not count, docstrings do."""
    return sorted(
        (
            Sized((node.end_lineno or node.lineno) - node.lineno + 1, f"{module.path}:{node.lineno} {node.name}")
            for module in house.modules.values()
            for node in ast.walk(module.tree)
            if isinstance(node, Function)
        ),
        reverse=True,
    )


def median_function(house: House) -> float:
    """Return the median length of a function."""
    return float(median(each.lines for each in functions(house)) if functions(house) else 0)


def settings(house: House) -> list[str]:
    """Return the names of the service's settings."""
    module, name = SETTINGS
    return [
        field.target.id
        for node in ast.walk(house.modules[module].tree)
        if isinstance(node, ast.ClassDef) and node.name == name
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and not ast.unparse(field.annotation).startswith("ClassVar")
    ]
