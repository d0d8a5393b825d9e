"""A device's file that is whole: it counts together with others that are whole at the same moment."""

from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel
from sqlalchemy.orm import Session

from service.api.received import Received, mends
from service.api.services import Services
from service.domain.principal import Principal
from service.operations.ledger.garbage import Named

Row = TypeVar("Row", bound=Named)
Receipt = TypeVar("Receipt", bound=BaseModel)


async def accept(
    services: Services,
    caller: Principal,
    upload: Received,
    act: Callable[[Session], tuple[Row, bool]],
    receipt: Callable[[Session, Row], Receipt],
    round_id: str | None = None,
) -> tuple[Receipt, bool]:
    """Make a file count; return its receipt, and whether it is new.

    Args:
        caller: the device that sent it.
        upload: the file, brought to where blobs are.
        act: makes it count; returns its row, and whether that is new.
        receipt: what the device gets of a row.
        round_id: the round of the model that an update began from.

    Raises:
        DomainError: what `act` refuses it for.
    """

    def count(session: Session) -> tuple[Receipt, bool]:
        row, fresh = act(session)
        made = receipt(session, row)
        upload.count(session, services, mends(session, services, row, fresh, upload.lost), made)
        return made, fresh

    return await services.deliveries.count(caller, count, round_id)
