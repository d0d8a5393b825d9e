"""What the service refuses. One class: the kind is one of `contract.wire.problems.KINDS`."""

from typing import Any

from contract.wire.problems import KINDS


class DomainError(Exception):
    """A request that cannot be done.

    Attributes:
        kind: key of the problem's kind.
        detail: what is wrong and what to do.
        members: the same for a program, such as `field` or `tensor`.
    """

    def __init__(self, kind: str, detail: str, **members: Any):
        if kind not in KINDS:
            raise KeyError(kind)
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.members = members


def not_found(what: str, id_: str) -> DomainError:
    """Return the refusal for an id that names nothing."""
    return DomainError("not-found", f"there is no {what} {id_[:64]!r}")


def invalid_field(field: str, detail: str, **members: Any) -> DomainError:
    """Return the refusal of one field of a request."""
    return DomainError("invalid-field", f"{field}: {detail}", field=field, **members)


class StartError(Exception):
    """A program cannot begin as it was set up; the message says what to do."""


class SchemaError(StartError):
    """The database has another schema than this program needs; the message says what to do."""
