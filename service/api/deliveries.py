"""Deliveries that are whole at one moment count with one transaction, and none is answered before it is committed.

A transaction costs a session, an fsync of the database and some of folders, and what is read of the federation, its
round and its devices before anything is written. Each delivery counts or is refused by itself.
"""

import contextvars
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from service.api.turns import Outcome, Turns
from service.domain.principal import Principal
from service.operations.fleet import turns
from service.operations.ledger.apart import apart
from service.operations.ledger.unit import Store

_MOST = 32
"""Deliveries of one transaction: so many take less than a tenth of a second, and others write, too."""
_ITS_OWN = (DataError, IntegrityError)
"""What a database says of values, and not of itself."""
Found = TypeVar("Found")


class _Delivery(NamedTuple):
    """What makes a file count, whose it is, and the round whose model it began from, if it is an update."""

    count: Callable[[Session], Any]
    client_id: str
    round_id: str | None
    context: contextvars.Context


class Deliveries:
    """Deliveries of one process, in its event loop; those of a federation come one turn after another.

    Args:
        store: where they are written.
    """

    def __init__(self, store: Store):
        self._store = store
        self._turns: dict[str, Turns[_Delivery, Any]] = {}

    async def count(self, caller: Principal, count: Callable[[Session], Found], round_id: str | None = None) -> Found:
        """Return what `count` does, which is in the database then; others of the federation share its transaction.

        Args:
            caller: a device.
            count: makes its delivery count; what it has written is undone where it fails.
            round_id: the round of the model that an update began from.

        Raises:
            Exception: what `count` raises; what the transaction fails of, after which nobody's counts.
        """
        federation_id = caller.federation_id or ""
        mine = self._turns.get(federation_id)
        if mine is None:
            mine = self._turns[federation_id] = Turns(lambda turn: self._write(federation_id, turn), _MOST)
        try:
            return cast(Found, await mine.ask(_Delivery(count, caller.id, round_id, contextvars.copy_context())))
        finally:
            if mine.is_idle:
                self._turns.pop(federation_id, None)

    def _write(self, federation_id: str, turn: list[_Delivery]) -> list[Outcome[Any]]:
        sent = [(each.round_id, each.client_id) for each in turn if each.round_id is not None]
        with self._store.write() as session:
            turns.begin(session, federation_id, sent)
            return [_one(session, each) for each in turn]


def _one(session: Session, each: _Delivery) -> Outcome[Any]:
    try:
        with apart(session):
            return Outcome(each.context.run(each.count, session), None)
    except Exception as error:
        if isinstance(error, DBAPIError) and not isinstance(error, _ITS_OWN):
            raise  # who knows what is left of the transaction
        return Outcome(None, error)
