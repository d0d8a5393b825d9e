"""Who is in a round, and when by the virtual clock; devices are trained when that is known."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from potstill.simulate.devices import LocalRound
from potstill.simulate.fleet import Fleet
from potstill.simulate.hands import Task
from potstill.simulate.history import History, Participation
from service.domain.rounds import Decision


class Collected(NamedTuple):
    """A round that is over.

    Attributes:
        train: has its devices train, and returns what came.
        closing: what becomes of it.
        clock: when its models are there by the virtual clock; None where there is none.
    """

    train: Callable[[], list[Participation]]
    closing: Decision
    clock: float | None


def buffered(
    fleet: Fleet, history: History, folder: Path, do: Callable[[Sequence[Task]], list[Participation]]
) -> Collected:
    """Return the next buffer; `do` has its devices train, each in the order in which it delivered."""
    filled, records = fleet.fill(), [history.initial, *history.rounds]

    def train() -> list[Participation]:
        tasks = []
        for work in filled.works:
            base = records[work.begun - 1]
            told = LocalRound(work.begun, base.models, base.state, folder, work.turn)
            tasks.append(Task(work.client, "train", (told, fleet.models[work.client])))
        done = do(tasks)
        for work, part in zip(filled.works, done, strict=True):
            part.label, part.begun, part.staleness = filled.called[work], work.begun, fleet.age(work)
        return sorted(done, key=lambda part: part.called)

    return Collected(train, filled.decision, filled.clock + fleet.pace.speeds.fuse_seconds)


def begun_from(fleet: Fleet, history: History) -> set[Path]:
    """Return what works began from that are still to come: their models, and what came beside them."""
    records = [history.initial, *history.rounds]
    bases = [records[index - 1] for index in fleet.begun if index <= len(records)]
    return {path.absolute() for each in bases for path in (*each.models.values(), *each.state.values())}


def called(by_client: Mapping[str, Path], participants: Sequence[Participation]) -> dict[str, Path]:
    """Return files by what updates are called, where several may be one client's."""
    return {each.called: by_client[each.client] for each in participants if each.client in by_client}
