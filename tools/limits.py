"""Rows of the operators' page, from the code: every setting with default, unit and bounds, and what is fixed."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from service import app
from service.api import bodies, middleware
from service.config import Settings
from service.infra import concurrency, connections, protocol, rates, wire
from service.operations.access import sessions, tokens
from service.operations.ledger import idempotency
from service.operations.steer import creation, predicting
from service.operations.store import datasets, models, reservations, uploads

_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def quantity(value: float, unit: str) -> str:
    """Return a number as people read it: a size in the largest unit that fits, any other with its unit."""
    if unit == "bytes":
        for size, name in _SIZES:
            if value and value % size == 0:
                return f"{int(value) // size} {name}"
    return f"{value:,g} {unit}".rstrip() if value < 1e6 else f"{int(value):,} {unit}"


def _unit(field: FieldInfo) -> str:
    told = field.json_schema_extra
    return str(told.get("unit", "")) if isinstance(told, dict) else ""


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return quantity(value, _unit(field)) if _unit(field) else str(value)  # a port is no quantity
    if isinstance(value, BaseModel):
        return f"`{json.dumps(value.model_dump(mode='json'))}`"
    return "" if value in (None, "") or isinstance(value, SecretStr) else f"`{value}`"


def _bounds(field: FieldInfo) -> str:
    words, unit = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}, _unit(field)
    found = []
    for limit in field.metadata:
        for name, word in words.items():
            value = getattr(limit, name, None)
            if value is not None:
                shown = quantity(value, unit if unit == "bytes" and value else "") if unit else f"{value}"
                found.append(f"{word} {shown}")
    return ", ".join(found)


def settings() -> Iterator[list[str]]:
    """Yield setting, what it is, default, bounds, and what is answered beyond a limit."""
    for name, field in Settings.model_fields.items():
        told = field.json_schema_extra
        answer = str(told.get("answer", "")) if isinstance(told, dict) else ""
        yield [f"POTSTILL_{name.upper()}", field.description or "", _default(field), _bounds(field), answer]


def fixed() -> Iterator[list[str]]:
    """Yield what is limited without a setting, to how much, and what is answered beyond it."""
    yield from _of_tokens()
    yield from _of_uploads()
    yield from _of_connections()
    yield from _of_rows()


def _of_tokens() -> Iterator[list[str]]:
    yield [
        "requests of a token",
        f"{rates.RATE_PER_SECOND:g} a second in the long run, {rates.RATE_BURST:,} at once; a join token "
        "twenty times as much",
        "429, `RateLimit`, `Retry-After`",
    ]
    yield [
        "requests of a token that are worked on at a time",
        f"{app.REQUESTS_AT_ONCE}, four times as many uploads",
        f"the others wait; beyond {concurrency.MOST_WAITING:,} that wait: 429",
    ]
    yield ["false tokens from an address", f"{rates.AUTH_FAILURES_PER_MINUTE} a minute", "429"]
    yield ["open long polls", f"{app.LONG_POLLS_PER_TOKEN} of a token, {app.LONG_POLLS:,} of a process", "429"]
    yield [
        "open event streams",
        f"{app.EVENT_STREAMS_PER_TOKEN} of a token, {app.EVENT_STREAMS:,} of a process",
        "429; `?format=json` goes on",
    ]


def _of_uploads() -> Iterator[list[str]]:
    yield [
        "open resumable uploads of a device, and beyond the first one their bytes",
        f"{uploads.MAX_OPEN}; one in {reservations.SHARE} of the next line, and of the free disk",
        "429 `too-many-uploads`; the answer lists them",
    ]
    yield [
        "bytes that all open resumable uploads hold: what came, and for "
        f"{_minutes(reservations.HOLDS.total_seconds())} after the last bytes what is missing",
        f"{quantity(uploads.MAX_OPEN_BYTES, 'bytes')}, or 32 times POTSTILL_MAX_UPLOAD_BYTES where that is more",
        "507",
    ]
    yield [
        "a body of which nothing comes",
        quantity(bodies.IDLE_SECONDS, "s"),
        "400; a resumable upload keeps what came",
    ]
    yield [
        "a resumable upload that gets nothing",
        quantity(reservations.EXPIRY.total_seconds() / 3600, "hours"),
        "it is removed",
    ]


def _of_connections() -> Iterator[list[str]]:
    most, head = connections.MAX_CONNECTIONS, quantity(protocol.MAX_HEAD_BYTES, "bytes")
    yield [
        "connections; the limit of open files is raised for them where the system lets it",
        f"{most:,} of a process",
        "503",
    ]
    yield [
        "connections of one address (IPv6: a /64) that is neither this machine nor a trusted proxy",
        f"half of them: {most // 2:,}",
        "hung up on",
    ]
    yield ["a JSON body", f"{quantity(middleware.MAX_JSON_BYTES, 'bytes')}, 64 levels deep", "413, 400"]
    yield ["all of a JSON body", quantity(middleware.JSON_SECONDS, "s"), "400"]
    yield [
        "an answer of which the client takes nothing",
        f"{_minutes(wire.STALL_SECONDS)} to twice that",
        "the connection ends",
    ]
    yield [
        "head of a request; trailers; a body after its answer",
        f"{head}, {protocol.HEAD_SECONDS:g} s; {head}; {protocol.LINGER_SECONDS:g} s",
        "431, 408; 431; the connection ends",
    ]


def _of_rows() -> Iterator[list[str]]:
    yield ["browsers that are signed in with a token", f"{sessions.MOST}", "the one that was used least is signed out"]
    yield [
        "federations that are not over; data sets; imported models; tokens that are not revoked",
        "; ".join(
            f"{each:,}"
            for each in (creation.MAX_FEDERATIONS, datasets.MAX_DATASETS, models.MAX_MODELS, tokens.MAX_TOKENS)
        ),
        "409 `limit-reached`",
    ]
    yield [
        "jobs that wait or run",
        "two of a federation, by design (its round; scores of latecomers), beside what operators retry",
        "none",
    ]
    yield [
        "predictions of a federation that are not made yet; samples times classes of one",
        f"{predicting.MAX_WAITING}; {predicting.MAX_VALUES:,}",
        "409 `limit-reached`; 422",
    ]
    yield ["Idempotency-Keys of a token in a week", f"{idempotency.MOST:,}", "429"]
    yield ["names", "100 characters", "422"]


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} minutes"
