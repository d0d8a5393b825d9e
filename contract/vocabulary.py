"""Token ids held against what a network knows: beyond it an embedding has no row, and on a GPU the process ends."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from contract import architectures
from contract.wire.federations import Prototype


class Known(NamedTuple):
    """What a network knows: its owner's name, its architecture's, and how many ids."""

    owner: str
    architecture: str
    size: int

    @property
    def wanted(self) -> str:
        """What ids are to be, and the remedy, as the end of a sentence."""
        return (
            f"{self.owner} ({self.architecture}) knows {self.size}, 0 to {self.size - 1}; make them with a tokenizer "
            "of that many, or take a network that knows more (option vocab_size)"
        )


def of(prototypes: Iterable[Prototype]) -> Known | None:
    """Return which network of a federation knows the fewest ids, as `smallest`."""
    return smallest((f"prototype {each.name!r}", each.architecture, each.options) for each in prototypes)


def smallest(networks: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Known | None:
    """Return the network that knows the fewest ids; None where none says how many it knows.

    Args:
        networks: owner, architecture, options of each.
    """
    found = [
        Known(owner, name, size)
        for owner, name, options in networks
        if (size := architectures.find(name).vocabulary(options)) is not None
    ]
    return min(found, key=lambda known: known.size, default=None)
