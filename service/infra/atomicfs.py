"""An embedded Celery transport: a folder of messages, each put in place by one rename.

kombu's own filesystem transport opens a message under its final name and then writes it; a consumer that comes between
takes an empty file, loses the message, and may end the worker with a JSONDecodeError. Here nothing is ever visible
half-written. Messages are wake-ups only (the jobs table is the truth), so a full queue drops further ones. Who puts one
in rings the queue's bell; a consumer that hears none looks every `polling_interval`.
"""

import fcntl
import os
import uuid
from json import dumps, loads
from pathlib import Path
from queue import Empty
from time import monotonic, time_ns
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, filesystem

from contract.private import private, private_folder
from service.infra.bells import Bells, ring

NAME = "atomicfs"
MAX_PENDING = 64


class Channel(filesystem.Channel):
    """A channel whose files appear whole or not at all."""

    @property
    def _folder(self) -> Path:
        return Path(self.data_folder_in)

    def _pending(self, queue: str) -> list[str]:
        ending = f".{queue}.msg"
        private_folder(self._folder)  # somebody may have wiped it: no wake-up is lost for good
        return sorted(name for name in os.listdir(self._folder) if name.endswith(ending) and name[0] != ".")

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        if len(self._pending(queue)) >= MAX_PENDING:
            return
        name = f"{time_ns():020d}-{uuid.uuid4().hex}.{queue}.msg"
        hidden = self._folder / f".{name}"
        with open(hidden, "w", encoding="utf-8", opener=private) as file:
            file.write(dumps(payload))
        os.replace(hidden, self._folder / name)
        ring(self._bell(queue))

    def _bell(self, queue: str) -> Path:
        return self._folder / f"{queue}.bell"

    def bells(self) -> set[Path]:
        """Return the bells of the queues that are consumed here."""
        return {self._bell(queue) for queue in self._active_queues}

    def _get(self, queue: str, timeout: Any = None) -> Any:
        for name in self._pending(queue):
            taken = self._folder / f".taken-{uuid.uuid4().hex}"
            try:
                os.rename(self._folder / name, taken)
            except FileNotFoundError:
                continue  # another consumer was faster
            try:
                return loads(taken.read_text(encoding="utf-8"))
            finally:
                taken.unlink(missing_ok=True)
        raise Empty

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
    for each in (folder, folder / "control", folder / "messages"):
        private_folder(each)
    return {
        "data_folder_in": str(folder / "messages"),
        "data_folder_out": str(folder / "messages"),
        "control_folder": str(folder / "control"),
        "polling_interval": poll_seconds,
    }
