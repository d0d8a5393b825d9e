"""Files that come to count with a transaction: named within it, on the disk before its commit."""

from pathlib import Path

from sqlalchemy.orm import Session

from service.infra.blobs import BlobStore
from service.infra.sums import Sums
from service.operations.ledger import checksums

_NAMED = "potstill.named"


def name(session: Session, blobs: BlobStore, temp: Path, sums: Sums) -> None:
    """Give a file its final name, under `locks.hold_blobs`; `settle` puts it on the disk before the commit."""
    blobs.name(temp, sums.digest)
    session.info.setdefault(_NAMED, {})[sums.digest] = sums.checksum


def settle(session: Session, blobs: BlobStore) -> None:
    """Put all names that the transaction gave on the disk, and the files' checksums into the books; after its locks."""
    named: dict[str, str] = session.info.pop(_NAMED, {})
    if named:
        session.flush()
        blobs.settle(named)
        checksums.note(session, named)
