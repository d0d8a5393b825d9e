"""Rounds that do not wait: what a device's piece of work is called, and how old an update is. No database."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_WORK = re.compile(r"(?P<round>[^.]{1,60})(\.(?P<turn>[1-9][0-9]{0,2}))?")


@dataclass(frozen=True)
class Work:
    """What a device was told to do: to train the model of a round, for the first time or again.

    Attributes:
        round_id: the round whose base model it begins from.
        turn: how many updates it has given from that model before.
    """

    round_id: str
    turn: int = 0

    def __str__(self) -> str:
        return f"{self.round_id}.{self.turn}" if self.turn else self.round_id

    @classmethod
    def read(cls, text: str) -> "Work":
        """Return the work that goes by an id: a round's, or one with a dot and the turn."""
        found = _WORK.fullmatch(text)
        return cls(text) if found is None else cls(found["round"], int(found["turn"] or 0))


class Given(NamedTuple):
    """An update of a buffer, by what decides its place among its client's, whatever the order of arrival.

    Attributes:
        client: its name.
        began: index of the round whose model it began from.
        turn: as in `Work`.
        client_id: of two clients of one name, of which the first was revoked, that one came first.
    """

    client: str
    began: int
    turn: int
    client_id: str = ""


def labels(given: Iterable[Given]) -> dict[Given, str]:
    """Return what each update is called: its client's name, and from that client's second on a number after a slash.

    No name has a slash in it.
    """
    seen, found = Counter[str](), dict[Given, str]()
    for each in sorted(given):
        seen[each.client] += 1
        found[each] = each.client if seen[each.client] == 1 else f"{each.client}/{seen[each.client]:02}"
    return found


class Version(NamedTuple):
    """A round after the one that an update began in, and before the one that it counts in."""

    state: str
    models: Sequence[str]


def staleness(model: str, rounds: Iterable[Version]) -> int:
    """Return how often a model was replaced in some rounds; one that is being fused is counted as if it were."""
    return sum(each.state == "aggregating" or model in each.models for each in rounds)
