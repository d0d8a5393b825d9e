"""What a download of a model is: which file, beside which other one, on whose account."""

from typing import NamedTuple

from sqlalchemy.orm import Session

from service.domain.principal import Principal
from service.infra.traffic import Account
from service.operations.store import models, traffic


class Download(NamedTuple):
    """A model's file, the file of the tensors that rounds leave alone where it has such, and whose bytes they are."""

    digest: str
    base: str | None
    account: Account | None


def find(session: Session, model_id: str, caller: Principal) -> Download:
    """Return what a caller downloads.

    Raises:
        DomainError: not-found, forbidden; removed.
    """
    row = models.with_weights(session, model_id, caller)
    return Download(row.digest, models.base_of(session, row), traffic.of_download(session, row, caller))
