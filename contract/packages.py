"""What installed packages offer beside potstill's own: entry points, and errors that name whose they are.

A package is code that the operator installed where it runs. Which packages there are is asked of the machine alone.
"""

import importlib.metadata
from dataclasses import dataclass
from typing import Any

ARCHITECTURES, CHOICES = "potstill.architectures", "potstill.choices"
GROUPS = (ARCHITECTURES, CHOICES)
"""Groups of entry points: rows of the catalogue (`contract.architectures`), choices (`contract.plugins`)."""


class PluginError(RuntimeError):
    """An installed package offers what cannot be taken in, or one that is needed is not here; says what to do."""


class PluginFault(RuntimeError):
    """The code of an installed package raised an error, or returned what it may not; says whose it is."""


@dataclass(frozen=True)
class Package:
    """A package by its name and version, as `pip` knows them."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def offers(group: str) -> list[importlib.metadata.EntryPoint]:
    """Return a group's entry points, in an order that does not hang on the order of installation."""
    points = importlib.metadata.entry_points(group=group)
    return sorted(points, key=lambda point: (point.name, point.value, str(package_of(point))))


def package_of(point: importlib.metadata.EntryPoint) -> Package | None:
    """Return whose an entry point is; None where its metadata have no name."""
    return None if point.dist is None else Package(point.dist.name, point.dist.version)


def where(point: importlib.metadata.EntryPoint) -> str:
    """Return in words whose an entry point is, and which."""
    package = package_of(point)
    owner = "" if package is None else f"package {package}, "
    return f"{owner}entry point {point.name!r} of group {point.group!r} ({point.value})"


def load(point: importlib.metadata.EntryPoint) -> Any:
    """Import what an entry point names.

    Raises:
        PluginError: it cannot be imported; names the package and says why.
    """
    try:
        return point.load()
    except Exception as error:  # code of others: whatever it raises, the package is told
        said = str(error) or type(error).__name__
        raise PluginError(f"{where(point)} cannot be loaded: {said}; mend or uninstall the package") from error


def versions() -> dict[str, str]:
    """Return the entry points of all groups with the packages they are of, name and version."""
    found = {}
    for group in GROUPS:
        for point in offers(group):
            package = package_of(point)
            found[point.name] = point.value if package is None else str(package)
    return found
