"""An embedded Celery transport: a folder of messages, each put in place by one rename.

kombu's own filesystem transport opens a message under its final name and then writes it; a consumer that comes between
takes an empty file, loses the message, and may end the worker with a JSONDecodeError. Here nothing is ever visible
half-written. Messages are wake-ups only (the jobs table is the truth), so a full queue drops further ones.
"""

import fcntl
import os
import uuid
from json import dumps, loads
from pathlib import Path
from queue import Empty
from time import time_ns
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, filesystem

from contract.private import private, private_folder

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
