"""Pieces that several bodies share."""

import re
from datetime import UTC, datetime
from typing import Annotated, Generic, TypeVar
from unicodedata import category

from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer, Strict

from contract.bodies import Body

Item = TypeVar("Item")


class Request(Body):
    """Base of request bodies: unknown fields are refused by name."""


class Response(Body):
    """Base of response bodies: a newer service may add fields, and rows are shown as they are."""

    model_config = ConfigDict(strict=False, extra="ignore", allow_inf_nan=True)


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _rfc3339(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Timestamp = Annotated[
    datetime,
    Strict(False),  # in JSON it is text
    AfterValidator(_utc),
    PlainSerializer(_rfc3339, return_type=str, when_used="json"),
]


_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Classes of characters that steer a terminal, turn the direction of what follows, or make two names look alike."""
_JOINERS = "\u200c\u200d"
"""Without these some scripts cannot be written."""


def unseen(text: str) -> bool:
    """Whether a text that people are shown has characters that are not seen, and steer what is."""
    return any(category(letter) in _UNSEEN and letter not in _JOINERS for letter in text)


def _plain(value: str) -> str:
    if unseen(value):
        raise ValueError("control characters, and others that are not seen, are not allowed")
    if not value.strip(_JOINERS):
        raise ValueError("must have a character that is seen")
    if value != value.strip():
        raise ValueError("must not start or end with a blank")
    if re.search(r"[/\\<>]|%(2[ef]|5c|00)", value, re.IGNORECASE) or value in (".", ".."):
        raise ValueError("the characters / \\ < >, their percent-encodings, and the names . and .. are not allowed")
    return value


Name = Annotated[str, Field(min_length=1, max_length=100, examples=["ward-7"]), AfterValidator(_plain)]
Digest = Annotated[str, Field(pattern=r"^sha256-[0-9a-f]{64}$", examples=["sha256-" + "0" * 64])]


class Page(Response, Generic[Item]):
    """A list, cut into pages: pass `next` as `after` for the following page; null on the last one."""

    items: list[Item]
    next: str | None = None
