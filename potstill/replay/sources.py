"""Where documents of provenance and their blobs come from: this machine's installation, or a bundle."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from potstill.console import CliError
from potstill.replay import bundles
from potstill.replay.publication import Publication
from potstill.storage.acts import note


class Source(Protocol):
    """Gives blobs as files."""

    def has(self, digest: str) -> bool:
        """Whether the blob is there."""
        ...

    def hold(self, digests: set[str]) -> contextlib.AbstractContextManager[dict[str, Path]]:
        """Have those blobs that are there as files for the length of the block."""
        ...


class Installation:
    """The database and the blobs that this environment's settings name; only read, but for rows of the audit log."""

    def __init__(self, settings: Any):
        from service.infra.blob_store import open_blobs
        from service.persistence import migrate
        from service.persistence.engine import Database

        if settings.is_sqlite and not (settings.home / "potstill.db").exists() and settings.database_url is None:
            raise CliError(f"there is no installation in {settings.home}; set POTSTILL_HOME")
        migrate.check(settings)
        self._database, self._blobs = Database(settings), open_blobs(settings)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def has(self, digest: str) -> bool:
        """Whether the blob is there."""
        try:
            self._blobs.store.size(digest)
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def hold(self, digests: set[str]) -> Iterator[dict[str, Path]]:
        """Have those blobs that are there as files for the length of the block."""
        here = {digest for digest in digests if self.has(digest)}
        with self._blobs.cache.hold(here):
            yield {digest: self._blobs.cache.path(digest) for digest in here}

    def find(self, reference: str) -> Publication:
        """Return the publication of a round, a model or a job, by id; or of a round as `federation:index`.

        Raises:
            CliError: there is no such thing, or it has no document.
        """
        from service.domain.errors import DomainError
        from service.operations.view import history

        try:
            with self._database.read() as session:
                row = history.find(session, reference)
                return Publication(history.title(session, row), row.document, row.digest)
        except DomainError as error:
            raise CliError(f"{error.detail}; name an id of a round, model or job, or federation:index") from None

    def note(self, action: str, target: str, **detail: Any) -> None:
        """Write a row of the audit log about something that was just done with a publication."""
        note(self._database, action, target, **detail)

    def all_of(self, federation: str) -> list[Publication]:
        """Return all publications of a federation, by its name or id, in the order they were made.

        Raises:
            CliError: there is no such federation.
        """
        from service.domain.errors import DomainError
        from service.operations.view import history

        try:
            with self._database.read() as session:
                rows = history.of_federation(session, federation)
                return [Publication(history.title(session, row), row.document, row.digest) for row in rows]
        except DomainError as error:
            raise CliError(f"{error.detail}; see potstill federation list") from None


class Bundle:
    """The contents of a bundle in a temporary folder."""

    def __init__(self, path: Path):
        self._folder = Path(tempfile.mkdtemp(prefix="potstill-bundle-"))
        try:
            self.publication = bundles.unpack(path, self._folder)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def has(self, digest: str) -> bool:
        """Whether the blob is there."""
        return bundles.place(self._folder, digest).exists()

    @contextlib.contextmanager
    def hold(self, digests: set[str]) -> Iterator[dict[str, Path]]:
        """Have those blobs that are there as files for the length of the block."""
        yield {digest: bundles.place(self._folder, digest) for digest in digests if self.has(digest)}
