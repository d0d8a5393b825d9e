"""Documents that come as JSON and are kept as blobs, in their one form."""

from sqlalchemy.orm import Session

from contract.networks.document import Document, canonical, digest_of
from service.api.received import mends
from service.api.services import Services
from service.infra.blobs import BlobFault
from service.infra.sums import Checksum
from service.operations.ledger import checksums
from service.operations.ledger.garbage import Named


class Kept:
    """A document on its way to where blobs are. Its file is temporary, and gone after `close`.

    Attributes:
        digest: of its one form.
    """

    def __init__(self, services: Services, document: Document):
        text = canonical(document)
        self.digest = digest_of(text)
        self._services, self._path = services, services.blobs.scratch.temp()
        self._path.write_bytes(text)
        self._checksum = Checksum()
        self._checksum.update(text)
        self._lost = False
        try:
            services.blobs.store.verify(self.digest)
        except BlobFault:
            self._lost = True
        services.blobs.store.prepare(self._path, self.digest)

    def count(self, session: Session, row: Named, fresh: bool) -> None:
        """Within the transaction that makes it count: give it its final name, where that is not there already."""
        if mends(session, self._services, row, fresh, self._lost):
            self._services.blobs.store.keep(self._path, self.digest)
            checksums.note(session, {self.digest: self._checksum.value})

    def close(self) -> None:
        """Remove what is temporary."""
        self._path.unlink(missing_ok=True)
