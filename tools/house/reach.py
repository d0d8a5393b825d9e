"""Which definitions of the numerical rules no round reaches: those that nothing but tests, or nothing at all, names.

Names decide, not types, and doubt counts as reached: an attribute of something unknown reaches every method of that
name. All product code outside the measured packages is a root; so is what runs on import, what a decorator of the
product's own is put over, and what is derived from a class of our own that notes its subclasses: choices are registered
so.
"""

import ast
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tools.house.source import Function, House, Module

MEASURED = {"worker.parts": 0, "client_sdk.objectives": 0, "contract": 70}
"""Where rules are, and how many of their lines tests alone may reach: in the contract, the list of kinds of events."""

_Statement = ast.stmt | ast.expr


@dataclass(eq=False)
class Definition:
    """A function, a method, a class without its methods, or a constant at the top of a module."""

    module: Module
    name: str
    body: list[_Statement]
    lines: int
    owner: "Definition | None" = None
    methods: list["Definition"] = field(default_factory=list)
    bases: list[ast.expr] = field(default_factory=list)
    decorators: list[ast.expr] = field(default_factory=list)
    is_root: bool = False

    def __str__(self) -> str:
        inside = f"{self.owner.name}." if self.owner else ""
        return f"{self.module.path}: {inside}{self.name}, {self.lines} lines"


@dataclass(frozen=True)
class Reach:
    """The lines of a package's definitions, and those definitions that are reached by tests only."""

    package: str
    lines: int
    unreached: list[Definition]

    @property
    def unreached_lines(self) -> int:
        """Their lines."""
        return sum(each.lines for each in self.unreached)


def reach(house: House) -> list[Reach]:
    """Return, for each measured package that is there, what the product does not reach."""
    graph = _Graph(house)
    reached = graph.walk()
    found = []
    for package in MEASURED:
        inside = [each for module in house.below(package) for each in graph.all_of(module)]
        if inside:
            unreached = [each for each in inside if each not in reached]
            found.append(Reach(package, sum(each.lines for each in inside), unreached))
    return found


class _Graph:
    def __init__(self, house: House):
        self._house = house
        self._modules = {module.name: module for module in house.product}
        self._defined = {m.name: {each.name: each for each in _definitions(m)} for m in house.product}
        self._imported = {module.name: _imported(module) for module in house.product}
        self._starred = {module.name: _starred(module) for module in house.product}
        self._measured = {module.name for package in MEASURED for module in house.below(package)}
        self._by_method: dict[str, list[Definition]] = {}
        for module in house.product:
            for each in self.all_of(module):
                if each.owner is not None:
                    self._by_method.setdefault(each.name, []).append(each)

    def all_of(self, module: Module) -> list[Definition]:
        """Return a module's definitions, methods too."""
        tops = self._defined[module.name].values()
        return [each for top in tops for each in (top, *top.methods)]

    def walk(self) -> set[Definition]:
        """Return what is reached."""
        reached: set[Definition] = set()
        attributes: set[str] = set()
        waiting: deque[tuple[Module, _Statement]] = deque()

        def enter(each: Definition) -> None:
            if each in reached:
                return
            reached.add(each)
            waiting.extend((each.module, node) for node in each.body)
            for method in each.methods:
                if method.is_root or method.name in attributes:
                    enter(method)

        for module in self._house.product:
            waiting.extend((module, node) for node in _run_on_import(module))
            for each in self._defined[module.name].values():
                if module.name not in self._measured or each.is_root or self._registers(each):
                    enter(each)
                    for method in each.methods if module.name not in self._measured else ():
                        enter(method)
        while waiting:
            module, node = waiting.popleft()
            for name in self._references(module, node, enter):
                if name not in attributes:
                    attributes.add(name)
                    for method in self._by_method.get(name, ()):
                        if method.owner in reached:
                            enter(method)
        return reached

    def _registers(self, each: Definition) -> bool:
        """Whether a decorator of our own is over it, or one of its bases is told of each subclass."""
        decorators = (d.func if isinstance(d, ast.Call) else d for d in each.decorators)
        return any(self._resolve(each.module, d) is not None for d in decorators) or self._is_noted(each)

    def _is_noted(self, each: Definition) -> bool:
        for base in each.bases:
            found = self._resolve(each.module, base)
            if isinstance(found, Definition):
                told = any(method.name in _TOLD for method in found.methods)
                if told or self._is_noted(found):
                    return True
        return False

    def _references(self, module: Module, node: _Statement, enter: "Callable[[Definition], None]") -> Iterator[str]:
        """Enter what a statement names, and yield the attributes of what is not known."""
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Name, ast.Attribute)):
                found = self._resolve(module, inner)
                if isinstance(found, Definition):
                    enter(found)
                elif isinstance(inner, ast.Attribute):
                    yield inner.attr

    def _resolve(self, module: Module, node: ast.expr) -> "Definition | str | None":
        """Return what an expression names: a definition, the name of a module, or None."""
        if isinstance(node, ast.Name):
            return self._named(module.name, node.id)
        if isinstance(node, ast.Attribute):
            base = self._resolve(module, node.value)
            return self._named(base, node.attr) if isinstance(base, str) else None
        return None

    def _named(self, module: str, name: str) -> "Definition | str | None":
        """Return what a name means in a module, through any number of imports."""
        for _ in range(10):
            if name in self._defined.get(module, {}):
                return self._defined[module][name]
            if name in self._imported.get(module, {}):
                origin, name = self._imported[module][name]
                if not name:
                    return origin if origin in self._modules else None
                if f"{origin}.{name}" in self._modules:
                    return f"{origin}.{name}"
                module = origin
                continue
            starred = [origin for origin in self._starred.get(module, ()) if self._named(origin, name) is not None]
            if starred:
                module = starred[0]
                continue
            return f"{module}.{name}" if f"{module}.{name}" in self._modules else None
        return None


def _imported(module: Module) -> dict[str, tuple[str, str]]:
    """Return what imports bind: name -> (module, name in it, '' for the module itself)."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name.partition(".")[0]] = (
                    each.name if each.asname else each.name.partition(".")[0],
                    "",
                )
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                found[each.asname or each.name] = (module.absolute(node), each.name)
    return found


def _starred(module: Module) -> list[str]:
    """Return the modules of which a module takes all names."""
    stars = (node for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom) and node.names[0].name == "*")
    return [module.absolute(node) for node in stars]


def _run_on_import(module: Module) -> Iterator[_Statement]:
    for node in module.tree.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) and not _names(node):
            yield node


def _names(node: ast.stmt) -> list[str]:
    """Return what a statement at the top of a module defines."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def _definitions(module: Module) -> Iterator[Definition]:
    for node in module.tree.body:
        for name in _names(node):
            if isinstance(node, ast.ClassDef):
                yield _class(module, node)
            else:
                decorators: list[ast.expr] = getattr(node, "decorator_list", [])
                special = name.startswith("__")
                yield Definition(module, name, [node], _lines(node), decorators=decorators, is_root=special)


def _class(module: Module, node: ast.ClassDef) -> Definition:
    """Return a class: its methods are reached by name, its special and its decorated ones with it."""
    methods = [each for each in node.body if isinstance(each, Function)]
    rest = [each for each in node.body if not isinstance(each, Function)]
    body: list[_Statement] = [*node.bases, *node.decorator_list, *rest]
    own = Definition(module, node.name, body, 0, bases=node.bases, decorators=node.decorator_list)
    for each in methods:
        called = each.name.startswith("__") or not _PLAIN.issuperset(map(ast.unparse, each.decorator_list))
        own.methods.append(Definition(module, each.name, [each], _lines(each), own, is_root=called))
    if any(not isinstance(base, ast.Name) for base in node.bases):  # a library's class, which may call any of them
        for method in own.methods:
            method.is_root = True
    own.lines = _lines(node) - sum(method.lines for method in own.methods)
    return own


_TOLD = ("__init_subclass__", "__pydantic_init_subclass__")
_PLAIN = frozenset({"property", "cached_property", "functools.cached_property", "staticmethod", "classmethod"})


def _lines(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)])
    return (node.end_lineno or node.lineno) - first + 1
