"""A file that came whole, and how it gets to where blobs are."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel
from sqlalchemy.orm import Session

from contract.tensors import Header
from service.api.services import Services
from service.infra.blobs import BlobFault
from service.infra.sums import Sums
from service.operations.ledger import naming
from service.operations.ledger.garbage import Named
from service.operations.store import faults, uploads
from service.operations.store.uploads import Held


@dataclass(frozen=True)
class Received:
    """A file on the disk, checked; `path` is temporary.

    `sums` has digest, checksum and size; `held` is the resumable upload that it came by, `staged` whose and which file
    of the bucket. `lost`: when it was brought to where blobs are, no whole one of its digest was there.
    """

    path: Path
    sums: Sums
    header: Header
    target: str = ""
    held: Held | None = None
    staged: tuple[str, str] | None = None
    lost: bool = False

    @property
    def digest(self) -> str:
        """What the blob is called."""
        return self.sums.digest

    @property
    def size(self) -> int:
        """In bytes."""
        return self.sums.size

    def bring(self, services: Services) -> bool:
        """Before that transaction: bring the file to where blobs are. Return whether no whole one of its digest was."""
        store, lost = services.blobs.store, False
        try:
            store.verify(self.digest)
        except BlobFault:
            lost = True
        store.prepare(self.path, self.digest)
        return lost

    def keep(self, session: Session, services: Services) -> None:
        """Within the transaction that makes the file count: give it its final name."""
        naming.name(session, services.blobs.store, self.path, self.sums)

    def count(self, session: Session, services: Services, fresh: bool, receipt: BaseModel) -> None:
        """Within that transaction: keep the file if it is `fresh`; what it came by is spent."""
        if fresh:
            self.keep(session, services)
        if self.held is not None:
            uploads.spend(session, self.held, self.target, receipt.model_dump(mode="json"))
        if self.staged is not None:
            answer = receipt.model_dump(mode="json")
            uploads.note(session, *self.staged, self.target, self.size, answer, uploads.KEPT)


def mends(session: Session, services: Services, row: Named, fresh: bool, lost: bool) -> bool:
    """Whether a file is to be kept: it is new, or the same bytes come again for one that was lost.

    What was `lost` when these bytes came may be there by now: the same delivery came by another connection, too.
    """
    if not fresh and lost and getattr(row, "removed_at", None) is None and not _is_whole(services, row.digest):
        faults.note_restored(session, row, row.digest)
        return True
    return fresh


def _is_whole(services: Services, digest: str | None) -> bool:
    try:
        services.blobs.store.verify(digest or "")
    except BlobFault:
        return False
    return True
