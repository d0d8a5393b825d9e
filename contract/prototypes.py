"""Which prototype a client trains: by its own wish, else the first one whose requirements it meets."""

from collections.abc import Mapping, Sequence

from contract.wire.federations import Capability, Prototype


def meets(requires: Mapping[str, Capability], has: Mapping[str, Capability]) -> bool:
    """Whether a client has what a prototype requires: numbers at least as large, everything else equal."""
    return all(_enough(has.get(name), wanted) for name, wanted in requires.items())


def _enough(value: Capability | None, wanted: Capability) -> bool:
    numbers = (int, float)
    if isinstance(value, numbers) and isinstance(wanted, numbers) and not isinstance(wanted, bool):
        return not isinstance(value, bool) and value >= wanted
    return value == wanted and type(value) is type(wanted)


def choose(prototypes: Sequence[Prototype], has: Mapping[str, Capability], wish: str | None) -> Prototype | None:
    """Return the prototype that a client gets; None if there is none for it."""
    for prototype in prototypes:
        if wish in (None, prototype.name) and meets(prototype.requires, has):
            return prototype
    return None
