"""Which prototype a client trains, or why none: the rule is `contract.prototypes`, which devices read, too."""

from collections.abc import Mapping, Sequence

from contract.prototypes import choose
from contract.wire.federations import Capability, Prototype
from service.domain.errors import invalid_field


def assign(prototypes: Sequence[Prototype], has: Mapping[str, Capability], wish: str | None) -> str:
    """Return the name of the prototype that a new client trains.

    Raises:
        DomainError: invalid-field, for a wish that cannot be met, or a client that no prototype is for.
    """
    chosen = choose(prototypes, has, wish)
    if chosen is not None:
        return chosen.name
    if wish is None:
        wanted = "; ".join(f"{prototype.name}: {prototype.requires}" for prototype in prototypes)
        raise invalid_field("capabilities", f"no prototype is for such a client; they require {wanted}")
    wished = next((prototype for prototype in prototypes if prototype.name == wish), None)
    if wished is None:
        raise invalid_field("prototype", f"this federation has {', '.join(each.name for each in prototypes)}")
    detail = f"{wish!r} requires {wished.requires}; say so in capabilities, or take another"
    raise invalid_field("prototype", detail)
