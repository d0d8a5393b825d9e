"""`potstill verify` and `potstill gc`: whether all that is named is there and whole; removal of what nothing names."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_AT_ONCE = 500
_SHOWN = 20
UNNAMED_SECONDS = 3600.0
"""How long nothing must have named a file before it is taken away: a younger one may be named in a moment."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with the database, a blob or a document.

    Attributes:
        digest: what it is called.
        what: what it is in the database; `unnamed` where nothing names it.
        state: missing, damaged, or what is the matter.
    """

    digest: str
    what: str
    state: str


@dataclass
class Verified:
    """What was looked at and found.

    Attributes:
        checked: files and documents that were read.
        findings: what is wrong.
        faults: those that are of blobs, as the store told them.
        unnamed: whole files that nothing names.
    """

    checked: int = 0
    findings: list[Finding] = field(default_factory=list)
    faults: list[Any] = field(default_factory=list)
    unnamed: set[str] = field(default_factory=set)


def verify_database(file: Path) -> list[Finding]:
    """Have SQLite look at its file and at its foreign keys; return what is wrong with it."""
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=60)) as connection:
            said = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({_SHOWN})")]
            broken = connection.execute("PRAGMA foreign_key_check").fetchmany(_SHOWN)
    except sqlite3.DatabaseError as error:
        return [Finding(file.name, "database", f"damaged: {error}")]
    wrong = [Finding(file.name, "database", f"damaged: {line}") for line in said if line != "ok"]
    return wrong + [
        Finding(f"{table} row {row}", "reference", f"names a row of {parent} that is missing")
        for table, row, parent, _ in broken
    ]


def verify(database: Any, blobs: Any, report: Callable[[int, int], None]) -> tuple[int, list[Finding]]:
    """Return how many files and documents there are and what is wrong with them; see `look`."""
    found = look(database, blobs, report)
    return found.checked, found.findings


def look(database: Any, blobs: Any, report: Callable[[int, int], None]) -> Verified:
    """Read every blob and every document of provenance, and look at what rows name by id.

    Named blobs must be there; all, also those that nothing names, must have the bytes that their names say. A blob that
    is let go while it is looked at is no finding.
    """
    from service.infra.blobs import BlobFault
    from service.operations.ledger import garbage

    found = Verified(findings=list(_references(database)))
    with database.read() as session:
        named = garbage.all_named(session)
    here = {digest for batch in blobs.batches(0, _AT_ONCE) for digest in batch}
    everything = sorted(here | named.keys())
    for number, digest in enumerate(everything):
        report(number, len(everything))
        try:
            blobs.verify(digest, anew=True)
        except BlobFault as fault:
            if fault.state == "missing" and not _is_named(database, digest):
                continue
            found.faults.append(fault)
            found.findings.append(Finding(digest, named.get(digest, "unnamed"), fault.state))
        else:
            if digest not in named:
                found.unnamed.add(digest)
    report(len(everything), len(everything))
    documents, wrong = _documents(database)
    found.checked = len(everything) + documents
    found.findings += wrong
    return found


def _is_named(database: Any, digest: str) -> bool:
    from service.operations.ledger import garbage

    with database.read() as session:
        return bool(garbage.named(session, {digest}))


def _references(database: Any) -> Iterator[Finding]:
    """Yield what open rounds and live federations name by id, in their documents, and that is not there."""
    from service.operations.view import history

    with database.read() as session:
        for where, what, id_ in history.dangling(session):
            yield Finding(where, "reference", f"names the {what} {id_} that is missing")


def _documents(database: Any) -> tuple[int, list[Finding]]:
    from service.operations.view import history

    with database.read() as session:
        count, wrong = history.damaged(session)
    return count, [Finding(id_, "provenance", "damaged") for id_ in wrong]


def repair(database: Any, blobs: Any, found: Verified, *, really: bool) -> list[Any]:
    """Return the steps that mend what was found, or what is left to do by hand; they are done only if `really` so."""
    from service.operations.ledger.unit import Store
    from service.operations.upkeep import repair as mend

    steps: list[Any] = []
    for fault in found.faults:
        if really:
            steps += mend.carry_out(Store(database, blobs), fault)
        else:
            with database.read() as session:
                steps += mend.plan(session, fault)
    return steps


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
