"""Devices that ask at one moment what to do, as all do whom a change has woken, are answered together.

One session reads for all of them, and one transaction notes who was there and who was told to train. Each is let in or
refused by itself.
"""

from dataclasses import dataclass

from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session

from contract.wire.devices import Assignment, TrainAssignment
from service.api.turns import Outcome, Turns
from service.domain.principal import Principal
from service.operations.access import tokens
from service.operations.fleet import assignments, clients
from service.operations.ledger.unit import Store
from service.operations.progress import participants

_MOST = 64
"""Devices in one session: so many take a few hundredths of a second, and others ask meanwhile."""
Answer = tuple[Assignment, int]
"""What to do, and the federation's version that it is true for."""


@dataclass(frozen=True)
class _Asking:
    """A device that asks; `beats`: it sends heartbeats."""

    caller: Principal
    beats: bool


@dataclass(frozen=True)
class _Found:
    """What a device is told, and what is to be noted before it hears: that it was seen, that it was told to train."""

    answer: Answer
    unseen: bool
    untold: str | None

    @property
    def is_news(self) -> bool:
        """Whether there is anything to note."""
        return self.unseen or self.untold is not None


class Desk:
    """Answers devices, in the event loop of one process.

    Args:
        store: read for all who ask, and written for those of whom something is to be noted.
    """

    def __init__(self, store: Store):
        self._store = store
        self._turns: Turns[_Asking, Answer] = Turns(self._answers, _MOST)

    async def ask(self, caller: Principal, beats: bool) -> Answer:
        """Return what a device has to do; that it was seen, and told to train, is in the database then.

        Args:
            caller: the device.
            beats: it sends heartbeats from the moment at which it is told to train.

        Raises:
            DomainError: unauthorized, when its token ended or it was revoked meanwhile.
        """
        return await self._turns.ask(_Asking(caller, beats))

    def _answers(self, turn: list[_Asking]) -> list[Outcome[Answer]]:
        with self._store.read() as session:
            assignments.together(session, {each.caller.id for each in turn})
            found = [_read(session, each) for each in turn]
        both = list(zip(turn, found, strict=True))
        news = [(each, what) for each, what in both if isinstance(what, _Found) and what.is_news]
        gone: dict[int, Exception] = {}
        if news:
            with self._store.write() as session:
                told = [(what.untold, each.caller.id) for each, what in news if what.untold is not None]
                assignments.noting(session, told, {each.caller.id for each, what in news if what.unseen})
                for each, what in sorted(news, key=_by_client):  # in one order: no two transactions wait crosswise
                    try:
                        _note(session, each, what)
                    except NoResultFound as error:  # what it takes part in went meanwhile
                        gone[id(each)] = error
        return [_outcome(gone.get(id(each), what)) for each, what in both]


def _outcome(what: _Found | Exception) -> Outcome[Answer]:
    return Outcome(None, what) if isinstance(what, Exception) else Outcome(what.answer, None)


def _by_client(news: tuple[_Asking, _Found]) -> str:
    return news[0].caller.id


def _read(session: Session, asking: _Asking) -> _Found | Exception:
    try:
        tokens.check_still_good(session, asking.caller)
        answer = assignments.read(session, asking.caller.id)
        told = answer[0].round.id if isinstance(answer[0], TrainAssignment) else None
        if told is not None and not participants.is_unfetched(session, told, asking.caller.id, asking.beats):
            told = None
        return _Found(answer, clients.is_unseen(session, asking.caller.id), told)
    except Exception as error:  # noqa: BLE001 - one device's, and raised in its own request
        return error


def _note(session: Session, asking: _Asking, found: _Found) -> None:
    if found.unseen:
        clients.see(session, asking.caller.id)
    if found.untold is not None:
        participants.note_fetched(session, found.untold, asking.caller.id, asking.beats)
