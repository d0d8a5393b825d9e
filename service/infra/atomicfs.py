"""An embedded Celery transport over the folder of messages, for workers of Celery's beside `potstill up`'s own.

kombu's own filesystem transport opens a message under its final name and then writes it; a consumer that comes between
takes an empty file, loses the message, and may end the worker with a JSONDecodeError. Here nothing is ever visible
half-written (`service.infra.folder_queue`). A consumer that hears no bell looks every `polling_interval`.
"""

import fcntl
import os
from json import dumps, loads
from pathlib import Path
from queue import Empty
from time import monotonic
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, filesystem

from contract.private import private, private_folder
from service.infra.bells import Bells
from service.infra.folder_queue import FolderQueue

NAME = "atomicfs"


class Channel(filesystem.Channel):
    """A channel whose files appear whole or not at all."""

    @property
    def _queues(self) -> FolderQueue:
        return FolderQueue(Path(self.data_folder_in))

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        self._queues.put(queue, payload)

    def bells(self) -> set[Path]:
        """Return the bells of the queues that are consumed here."""
        return {self._queues.bell(queue) for queue in self._active_queues}

    def _get(self, queue: str, timeout: Any = None) -> Any:
        message = self._queues.take(queue)
        if message is None:
            raise Empty
        return message

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        table = Path(self._exchange_file(exchange))  # type: ignore[no-untyped-call]
        private_folder(table.parent)
        with open(table.with_suffix(".lock"), "w", encoding="utf-8", opener=private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            rows = loads(table.read_text(encoding="utf-8")) if table.exists() else []
            row = [routing_key or "", pattern or "", queue or ""]
            if row not in rows:
                fresh = table.with_suffix(".new")
                with open(fresh, "w", encoding="utf-8", opener=private) as file:
                    file.write(dumps([row, *rows]))
                os.replace(fresh, table)


class Transport(filesystem.Transport):
    """The transport, registered as ``atomicfs://``."""

    Channel = Channel

    def __init__(self, client: Any, **kwargs: Any):
        super().__init__(client, **kwargs)  # type: ignore[no-untyped-call]
        self._bells = Bells()

    def drain_events(self, connection: Any, timeout: float | None = None, **kwargs: Any) -> None:
        """Hand on the next message, as soon as there is one.

        Raises:
            TimeoutError: there was none in time.
        """
        assert self.cycle is not None
        end = None if timeout is None else monotonic() + timeout
        while True:
            self._bells.hang({bell for channel in self.channels for bell in channel.bells()})
            try:
                self.cycle.get(self._deliver, timeout=timeout)  # type: ignore[no-untyped-call]
                return
            except Empty:
                left = self.polling_interval if end is None else min(self.polling_interval, end - monotonic())
            if left <= 0:
                raise TimeoutError
            self._bells.wait(left)

    def close_connection(self, connection: Any) -> None:
        """Let go of the channels, and of the bells."""
        super().close_connection(connection)  # type: ignore[no-untyped-call]
        self._bells.close()


def register() -> None:
    """Make ``atomicfs://`` known to kombu in this process."""
    TRANSPORT_ALIASES[NAME] = f"{__name__}:Transport"


def options(folder: Path, poll_seconds: float) -> dict[str, Any]:
    """Return kombu's transport options for a queue folder, which is made if it is not there."""
    messages = folder / "messages"
    for each in (folder, folder / "control", messages):
        private_folder(each)
    return {
        "data_folder_in": str(messages),
        "data_folder_out": str(messages),
        "control_folder": str(folder / "control"),
        "polling_interval": poll_seconds,
    }
