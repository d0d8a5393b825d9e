"""Devices that ask at one moment what to do, as all do whom a change has woken, are answered together.

One session reads for all of them, and one transaction notes who was there and who was told to train. Each is let in or
refused by itself.
"""

import asyncio
from dataclasses import dataclass

from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from contract.wire.devices import Assignment, TrainAssignment
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
    """A device that waits for its answer; `beats`: it sends heartbeats."""

    caller: Principal
    beats: bool
    answer: asyncio.Future[Answer]


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
        self._asking: list[_Asking] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, caller: Principal, beats: bool) -> Answer:
        """Return what a device has to do; that it was seen, and told to train, is in the database then.

        Args:
            caller: the device.
            beats: it sends heartbeats from the moment at which it is told to train.

        Raises:
            DomainError: unauthorized, when its token ended or it was revoked meanwhile.
        """
        mine = _Asking(caller, beats, asyncio.get_running_loop().create_future())
        self._asking.append(mine)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await mine.answer

    async def _run(self) -> None:
        """Answer until nobody asks; who asks meanwhile is of the next turn."""
        while self._asking:
            turn, self._asking = self._asking[:_MOST], self._asking[_MOST:]
            try:
                answers = await run_in_threadpool(self._answers, turn)
            except Exception as error:  # noqa: BLE001 - the database is away: each request fails of it, as if alone
                answers = [error] * len(turn)
            for each, answer in zip(turn, answers, strict=True):
                if each.answer.done():  # the device hung up
                    continue
                if isinstance(answer, Exception):
                    each.answer.set_exception(answer)
                else:
                    each.answer.set_result(answer)

    def _answers(self, turn: list[_Asking]) -> list[Answer | Exception]:
        with self._store.read() as session:
            assignments.together(session, {each.caller.id for each in turn})
            found = [_read(session, each) for each in turn]
        both = list(zip(turn, found, strict=True))
        news = [(each, what) for each, what in both if isinstance(what, _Found) and what.is_news]
        gone: dict[int, Exception] = {}
        if news:
            with self._store.write() as session:
                for each, what in sorted(news, key=_by_client):  # in one order: no two transactions wait crosswise
                    try:
                        _note(session, each, what)
                    except NoResultFound as error:  # what it takes part in went meanwhile
                        gone[id(each)] = error
        return [gone.get(id(each)) or (what if isinstance(what, Exception) else what.answer) for each, what in both]


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
