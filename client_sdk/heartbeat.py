"""Says while a device trains that it is alive and how far: from a thread of its own, sparingly, never in the way."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from client_sdk.client import Client
from client_sdk.data import Samples
from client_sdk.errors import ApiError, PotstillError
from contract.wire.devices import Heartbeat, TrainAssignment

_PATIENCE = 10.0  # seconds: the next one comes soon


class Heartbeats:
    """Sends heartbeats for one round, at once and then as often as the assignment asks; a context manager.

    A heartbeat that fails is not tried again: the next one says the same. When the service says that it wants none
    (the round is over, the client was revoked), there are no more; training goes on and its upload gets the answer.
    """

    def __init__(self, client: Client, assignment: TrainAssignment, samples: Samples):
        self._client, self._round = client, assignment.round.id
        self._every = assignment.round.heartbeat_seconds
        self._lock, self._ended = threading.Lock(), threading.Event()
        plan = assignment.local
        self._of = plan.epochs * samples.steps(plan.batch_size) if plan.privacy is None else None
        self._epoch = self._step = 0
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def between(self, on_epoch: Callable[[int, float], None]) -> Callable[[int, float], None]:
        """Return a function that notes the number of epochs done, then calls `on_epoch`."""

        def done(epoch: int, loss: float) -> None:
            with self._lock:
                self._epoch = epoch
            on_epoch(epoch, loss)

        return done

    def step(self, number: int) -> None:
        """Note that so many steps are done."""
        with self._lock:
            self._step = number

    def __enter__(self) -> Self:
        if self._every is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                beat = Heartbeat(epoch=self._epoch, step=self._step, of=self._of)
            wait = float(self._every or 0)
            try:
                wait = float(self._client.heartbeat(self._round, beat, timeout=_PATIENCE).heartbeat_seconds)
            except ApiError as error:
                if error.kind and error.status in (401, 403, 404, 405, 409, 422):
                    return
            except PotstillError:
                pass
            self._ended.wait(max(wait, 0.5))
