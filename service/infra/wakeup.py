"""Sends wake-ups from a thread of its own, so that no request waits for a broker."""

import logging
import threading

from service.config import Settings
from service.infra.queue import Sender

log = logging.getLogger(__name__)


class Wakeup:
    """Tells workers, after a commit, that a job is there. Several requests at once make one message."""

    def __init__(self, settings: Settings):
        self._sender = Sender(settings)
        self._wanted = threading.Event()
        self._queues: set[str] = set()
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="wakeup", daemon=True)
        self._thread.start()

    def request(self, queues: set[str]) -> None:
        """Have the workers of some queues woken soon; never blocks and never fails."""
        with self._lock:
            self._queues |= queues
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._ended:
                return
            with self._lock:
                queues, self._queues = self._queues, set()
            for queue in sorted(queues):
                self._sender.send(queue)

    def close(self) -> None:
        """End the thread; a message not yet sent is left to the sweep of another process or the next start."""
        self._ended = True
        self._wanted.set()
        self._thread.join(timeout=5)
        self._sender.close()
