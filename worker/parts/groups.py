"""Who trained which model of a round: prototypes (FedDF Alg. 3, Fed-ET eq. 12) and their groups (FedSDD eq. 2).

The draw of the groups is in `contract.grouping`: the service makes it.
"""

from collections.abc import Sequence

from worker.parts.errors import PartError


def by_model(owners: Sequence[tuple[str, str]], models: Sequence[str]) -> dict[str, list[int]]:
    """Return which updates each model has, by index in the order given.

    A model that nobody trained is not there: it stays as it was sent out.

    Args:
        owners: (name, the model it trained) of each update.
        models: those of the round.

    Raises:
        PartError: out_of_range, naming the update, for a model that the round does not have.
    """
    found: dict[str, list[int]] = {}
    for index, (name, model) in enumerate(owners):
        if model not in models:
            raise PartError("out_of_range", f"{name}: no prototype {model!r} here")
        found.setdefault(model, []).append(index)
    return found
