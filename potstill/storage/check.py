"""`potstill verify` and `potstill gc`: whether all that is named is there and whole; removal of what nothing names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_AT_ONCE = 500


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a blob or a document.

    Attributes:
        digest: what it is called.
        what: what it is in the database; `unnamed` where nothing names it.
        state: missing, damaged.
    """

    digest: str
    what: str
    state: str


def verify(database: Any, blobs: Any, report: Callable[[int, int], None]) -> tuple[int, list[Finding]]:
    """Read every blob and every document of provenance; return how many were read and what is wrong.

    Named blobs must be there; all, also those that nothing names, must have the bytes that their names say. A blob that
    is let go while it is looked at is no finding.
    """
    from service.operations.ledger import garbage

    with database.read() as session:
        named = garbage.all_named(session)
    here = {digest for batch in blobs.batches(0, _AT_ONCE) for digest in batch}
    findings = []
    everything = sorted(here | named.keys())
    for number, digest in enumerate(everything):
        report(number, len(everything))
        state = _state(blobs, digest)
        if state == "missing":
            with database.read() as session:
                if not garbage.named(session, {digest}):
                    continue
        if state is not None:
            findings.append(Finding(digest, named.get(digest, "unnamed"), state))
    report(len(everything), len(everything))
    documents, wrong = _documents(database)
    return len(everything) + documents, findings + wrong


def _state(blobs: Any, digest: str) -> str | None:
    from hashlib import sha256

    found = sha256()
    try:
        for piece in blobs.read(digest):
            found.update(piece)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"unreadable ({error.strerror})"
    return None if f"sha256-{found.hexdigest()}" == digest else "damaged"


def _documents(database: Any) -> tuple[int, list[Finding]]:
    from service.operations.view import history

    with database.read() as session:
        count, wrong = history.damaged(session)
    return count, [Finding(id_, "provenance", "damaged") for id_ in wrong]


def collect(
    database: Any, blobs: Any, older_than_seconds: float, dry_run: bool, found: Callable[[str, int], None]
) -> int:
    """Remove blobs that nothing names, as the running service does every ten minutes; return their bytes.

    Args:
        found: told each digest and its bytes.
    """
    from service.operations.ledger import garbage

    total = 0

    def tell(digests: set[str]) -> None:
        nonlocal total
        for digest in sorted(digests):
            try:
                size = blobs.size(digest)
            except FileNotFoundError:
                continue
            total += size
            found(digest, size)

    garbage.collect(database, blobs, older_than_seconds, dry_run=dry_run, on_unnamed=tell)
    return total
