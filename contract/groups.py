"""Names of the models of a grouped federation: `main`, `main~1`, `main~2`, … are the K models of one prototype.

Everything that handles prototypes handles these copies alike; only who trains which, and who is the main one, differs.
"""

SEPARATOR = "~"


def copies(prototype: str, count: int) -> list[str]:
    """Return the names of a prototype's K models; the main one, number 0, has the prototype's own name."""
    return [prototype, *(f"{prototype}{SEPARATOR}{number}" for number in range(1, count))]


def original(name: str) -> str:
    """Return the prototype that a model is a copy of."""
    return name.partition(SEPARATOR)[0]


def is_main(name: str) -> bool:
    """Whether a model is the main one of its prototype."""
    return SEPARATOR not in name
