"""Server-sent events: read line by line, resumed by the last id."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from client_sdk.errors import TransportError
from client_sdk.transport import Transport
from contract.wire.events import Event

_SILENCE = 45.0  # seconds: three of the service's heartbeats


class Message(NamedTuple):
    """One dispatched message of a stream; `id` is None unless the stream has named one so far."""

    id: str | None
    event: str
    data: str


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """Yield the messages of a stream of lines, as the HTML standard reads them; one without data carries an id only."""
    last_id: str | None = None
    name, data = "message", list[str]()
    for line in lines:
        if not line:
            yield Message(last_id, name, "\n".join(data))
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id" and "\0" not in value:
            last_id = value
        elif field == "event":
            name = value
        elif field == "data":
            data.append(value)


def follow(transport: Transport, path: str, after: int | None, newest: int | None) -> Iterator[Event]:
    """Yield events without end; see `OperatorClient.events`."""
    last: str | None = None
    broken = 0
    while True:
        headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": last})
        params = {"after": after, "newest": newest} if last is None else {}
        try:
            with transport.stream("GET", path, params=params, headers=headers, timeout=_SILENCE) as response:
                for message in messages(response.iter_lines()):
                    broken, last = 0, message.id or last
                    if message.data and message.id is not None and message.event not in ("progress", "missed"):
                        yield Event.model_validate_json(message.data)
        except TransportError:
            if broken >= transport.retries:
                raise
        if broken:
            transport.pause(broken)
        broken += 1
