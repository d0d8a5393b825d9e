"""Which prototype a client trains: by its own wish, else the first one whose requirements it meets."""

from collections.abc import Mapping, Sequence

from contract.wire.federations import Capability, Prototype
from service.domain.errors import invalid_field


def meets(requires: Mapping[str, Capability], has: Mapping[str, Capability]) -> bool:
    """Whether a client has what a prototype requires: numbers at least as large, everything else equal."""
    return all(_enough(has.get(name), wanted) for name, wanted in requires.items())


def _enough(value: Capability | None, wanted: Capability) -> bool:
    numbers = (int, float)
    if isinstance(value, numbers) and isinstance(wanted, numbers) and not isinstance(wanted, bool):
        return not isinstance(value, bool) and value >= wanted
    return value == wanted and type(value) is type(wanted)


def assign(prototypes: Sequence[Prototype], has: Mapping[str, Capability], wish: str | None) -> str:
    """Return the name of the prototype that a new client trains.

    Raises:
        DomainError: invalid-field, for a wish that cannot be met, or a client that no prototype is for.
    """
    if wish is not None:
        chosen = next((prototype for prototype in prototypes if prototype.name == wish), None)
        if chosen is None:
            raise invalid_field("prototype", f"this federation has {', '.join(each.name for each in prototypes)}")
        if not meets(chosen.requires, has):
            raise invalid_field(
                "prototype", f"{wish!r} requires {chosen.requires}; say so in capabilities, or take another"
            )
        return wish
    for prototype in prototypes:
        if meets(prototype.requires, has):
            return prototype.name
    wanted = "; ".join(f"{prototype.name}: {prototype.requires}" for prototype in prototypes)
    raise invalid_field("capabilities", f"no prototype is for such a client; they require {wanted}")
