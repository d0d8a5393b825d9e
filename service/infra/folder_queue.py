"""The embedded queue: a folder of messages, each put in place by one rename, and a bell beside them.

Nothing is ever visible half-written. Messages are wake-ups only (the jobs table is the truth), so a full queue drops
further ones. Who puts one in rings the queue's bell; who hears none looks now and then.
"""

import os
import uuid
from json import dumps, loads
from pathlib import Path
from time import time_ns
from typing import Any

from contract.private import private, private_folder
from service.infra.bells import ring

MAX_PENDING = 64


class FolderQueue:
    """Queues by name in one folder, which is made when it is not there: somebody may have wiped it.

    Args:
        folder: of the messages.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def _pending(self, queue: str) -> list[str]:
        ending = f".{queue}.msg"
        private_folder(self._folder)
        return sorted(name for name in os.listdir(self._folder) if name.endswith(ending) and name[0] != ".")

    def put(self, queue: str, message: Any) -> None:
        """Add a message, which JSON holds, and ring; a full queue takes none."""
        if len(self._pending(queue)) >= MAX_PENDING:
            return
        name = f"{time_ns():020d}-{uuid.uuid4().hex}.{queue}.msg"
        hidden = self._folder / f".{name}"
        with open(hidden, "w", encoding="utf-8", opener=private) as file:
            file.write(dumps(message))
        os.replace(hidden, self._folder / name)
        ring(self.bell(queue))

    def take(self, queue: str) -> Any:
        """Take the oldest message, which nobody else has then; None if there is none."""
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
        return None

    def clear(self, queue: str) -> bool:
        """Take all messages, whatever they say; return whether there was one."""
        found = False
        for name in self._pending(queue):
            try:
                (self._folder / name).unlink()
            except FileNotFoundError:
                continue  # another consumer was faster
            found = True
        return found

    def bell(self, queue: str) -> Path:
        """Return the bell of a queue."""
        return self._folder / f"{queue}.bell"
