"""The chain of the audit log: each row's hash covers the row and the hash before, so whoever reads can check it."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

FIRST = "0" * 64
FIELDS = (
    "seq",
    "at",
    "actor_id",
    "actor_name",
    "role",
    "address",
    "action",
    "target",
    "federation_id",
    "request_id",
    "outcome",
    "detail",
)


def row_hash(previous: str, row: dict[str, Any]) -> str:
    """Return the SHA-256 (hex) of the hash before and the row's `FIELDS` as canonical JSON; `at` is RFC 3339 text."""
    text = json.dumps({name: row[name] for name in FIELDS}, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def first_break(rows: Iterable[dict[str, Any]]) -> tuple[int, str] | None:
    """Return the number of the first row, oldest first, that does not follow from the one before, and why; else None.

    The first row's own `previous_hash` is taken as it is: retention may have removed what came before.
    """
    before: dict[str, Any] | None = None
    for row in rows:
        if before is not None and row["seq"] != before["seq"] + 1:
            return row["seq"], f"follows {before['seq']}: rows are missing"
        if before is not None and row["previous_hash"] != before["hash"]:
            return row["seq"], "does not carry the hash of the row before"
        if row_hash(row["previous_hash"], row) != row["hash"]:
            return row["seq"], "was changed: its hash does not fit what it says"
        before = row
    return None
