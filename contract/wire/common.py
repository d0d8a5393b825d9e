"""Pieces that several bodies share."""

import re
from datetime import UTC, datetime
from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer, Strict

from contract.bodies import Body
from contract.bounds import JOINERS, NAME, check_shown

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


def _plain(value: str) -> str:
    check_shown(value)
    if not value.strip(JOINERS):
        raise ValueError("must have a character that is seen")
    if value != value.strip():
        raise ValueError("must not start or end with a blank")
    if re.search(r"[/\\<>]|%(2[ef]|5c|00)", value, re.IGNORECASE) or value in (".", ".."):
        raise ValueError("the characters / \\ < >, their percent-encodings, and the names . and .. are not allowed")
    return value


Name = Annotated[str, Field(min_length=1, max_length=NAME, examples=["ward-7"]), AfterValidator(_plain)]
Digest = Annotated[str, Field(pattern=r"^sha256-[0-9a-f]{64}$", max_length=71, examples=["sha256-" + "0" * 64])]


class Page(Response, Generic[Item]):
    """A list, cut into pages: pass `next` as `after` for the following page; null on the last one."""

    items: list[Item]
    next: str | None = None
