"""The product's modules, read and parsed, and what their names mean."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PRODUCT = ("contract", "client_sdk", "service", "worker", "potstill")
OUTSIDE = ("experiments", "tools")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file. `name` is dotted, a package's without `__init__`."""

    name: str
    path: Path
    is_package: bool
    text: str
    tree: ast.Module = field(repr=False)

    @property
    def top(self) -> str:
        """The package at the top level that it is in."""
        return self.name.partition(".")[0]

    @property
    def lines(self) -> int:
        """Lines of the file."""
        return len(self.text.splitlines())

    @cached_property
    def docstrings(self) -> set[ast.expr]:
        """The strings that say what a module, a class or a function is."""
        owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found: set[ast.expr] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, owners) and node.body and isinstance(node.body[0], ast.Expr):
                found.add(node.body[0].value)
        return found

    def absolute(self, node: ast.ImportFrom) -> str:
        """Return the module that is imported from."""
        if not node.level:
            return node.module or ""
        parents = self.name.split(".")
        base = parents[: len(parents) - node.level + self.is_package]
        return ".".join([*base, *([node.module] if node.module else [])])


class House:
    """A checkout.

    Args:
        root: of the repository.
        packages: the packages at the top level that are read.
    """

    def __init__(self, root: Path, packages: tuple[str, ...] = (*PRODUCT, *OUTSIDE)):
        self.root = root
        self.modules = {module.name: module for package in packages for module in _read(root, package)}

    @property
    def product(self) -> list[Module]:
        """The modules that are distributed."""
        return [module for module in self.modules.values() if module.top in PRODUCT]

    def below(self, package: str) -> list[Module]:
        """Return the modules of a package, at any depth."""
        return [m for name, m in self.modules.items() if name == package or name.startswith(f"{package}.")]

    def imports(self, module: Module) -> Iterator[str]:
        """Yield the names of our modules that a module imports, at its top or within a function."""
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names if each.name in self.modules)
            elif isinstance(node, ast.ImportFrom):
                base = module.absolute(node)
                inner = {f"{base}.{each.name}" for each in node.names} & self.modules.keys()
                yield from inner
                if base in self.modules and len(inner) < len(node.names):
                    yield base


def _read(root: Path, package: str) -> Iterator[Module]:
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        text = path.read_text()
        yield Module(
            ".".join(parts[:-1] if is_package else parts), path.relative_to(root), is_package, text, ast.parse(text)
        )
