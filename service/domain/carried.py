"""What a recipe carries from round to round, when its models change otherwise than by a published round.

What that is, and whom it follows, is what the recipe's choices declare (`contract.choices.Carried`).
"""

from collections.abc import Mapping, Set
from typing import TypeVar

from contract.choices import Follows
from contract.choices import carried as declared_of

File = TypeVar("File")


def _follows(name: str) -> tuple[Follows, str]:
    """Return whom a kept file follows, and the model that it is of; what nobody declares goes with its round."""
    declared, model = declared_of(name)
    return ("round" if declared is None else declared.follows), model


def too_new(made: Mapping[str, int], round_index: int) -> set[str]:
    """Return what a rollback drops: everything that was made after that round, but what has its other half on devices.

    Steps begin again without a memory, as in the first round; what was made up to that round stays.

    Args:
        made: name -> round in which it was made.
        round_index: the round to go back to.
    """
    return {name for name, made_in in made.items() if made_in > round_index and _follows(name)[0] != "devices"}


def of_another_path(names: Set[str], prototype: str) -> set[str]:
    """Return what a promotion drops: steps towards the model that is replaced."""
    return {name for name in names if _follows(name) == ("steps", prototype)}


def _tells_of(name: str, model: str) -> bool:
    return _follows(name) in (("steps", model), ("model", model))


def turned_back(made: Mapping[str, int], model: str, round_index: int) -> set[str]:
    """Return what is dropped when one model goes back to an earlier round: what tells of it and was made since."""
    return {name for name, made_in in made.items() if made_in > round_index and _tells_of(name, model)}


def of_client(names: Set[str], client: str) -> set[str]:
    """Return what goes when a client is deleted: what tells of it, alone or among all."""
    found = set()
    for name in names:
        declared, of = declared_of(name)
        tells_of = None if declared is None else declared.tells_of
        if tells_of == "all" or (tells_of == "client" and of == client):
            found.add(name)
    return found


def after_gate(
    old: Mapping[str, File], new: Mapping[str, File], rejected: Set[str], nothing_left: bool
) -> dict[str, File]:
    """Return what is carried out of a round some of whose models were rejected.

    What tells of a rejected model stays as it was. When all were rejected, everything stays as it was but what has its
    other half on devices, which have moved theirs.
    """

    def stays(name: str) -> bool:
        return (nothing_left and _follows(name)[0] != "devices") or any(_tells_of(name, model) for model in rejected)

    unchanged = {name: value for name, value in old.items() if stays(name)}
    return unchanged | {name: value for name, value in new.items() if not stays(name)}
