"""What a recipe keeps from round to round, when its models change otherwise than by a published round.

Names are the worker's: `velocity.<prototype>` and `adam.<prototype>` (server optimisers), `control.<prototype>` and
`send.control.<model>` (SCAFFOLD), `past.<model>.<round>` (FedSDD), `global.<model>.<round>` and `send.teacher.<model>`
(FedGKD), `tgp` and `send.prototypes` (FedTGP), `send.public` and `send.targets` (DS-FL).
"""

from collections.abc import Mapping, Set
from typing import TypeVar

Kept = TypeVar("Kept")
_CONTROL = ("control.", "send.control.")
_STEPS = ("velocity.", "adam.")


def is_control(name: str) -> bool:
    """Whether it is SCAFFOLD's server variate: the other half is on the devices, which no operator can turn back."""
    return name.startswith(_CONTROL)


def too_new(made: Mapping[str, int], round_index: int) -> set[str]:
    """Return what a rollback drops: everything that was made after that round, but SCAFFOLD's variates.

    A server optimiser begins again without momentum, as in the first round. Past models and teachers up to that round
    stay. SCAFFOLD's c is the mean of the devices' c_i, which stay as they are, and so it does too.

    Args:
        made: name -> round in which it was made.
        round_index: the round to go back to.
    """
    return {name for name, made_in in made.items() if made_in > round_index and not is_control(name)}


def of_another_path(names: Set[str], prototype: str) -> set[str]:
    """Return what a promotion drops: a server optimiser's steps towards the model that is replaced."""
    return {name for name in names if name in {step + prototype for step in _STEPS}}


def _tells_of(name: str, model: str) -> bool:
    return name in {*(step + model for step in _STEPS), f"send.teacher.{model}"} or name.startswith(f"global.{model}.")


def turned_back(made: Mapping[str, int], model: str, round_index: int) -> set[str]:
    """Return what is dropped when one model goes back to an earlier round: what tells of it and was made since."""
    return {name for name, made_in in made.items() if made_in > round_index and _tells_of(name, model)}


def after_gate(
    old: Mapping[str, Kept], new: Mapping[str, Kept], rejected: Set[str], nothing_left: bool
) -> dict[str, Kept]:
    """Return what is kept of a round some of whose models were rejected.

    What tells of a rejected model stays as it was. When all were rejected, everything stays as it was but SCAFFOLD's
    variates: the devices have moved theirs.
    """

    def stays(name: str) -> bool:
        return (nothing_left and not is_control(name)) or any(_tells_of(name, model) for model in rejected)

    unchanged = {name: value for name, value in old.items() if stays(name)}
    return unchanged | {name: value for name, value in new.items() if not stays(name)}
