"""Says while a device trains that it is alive and how far: from a thread of its own, sparingly, never in the way."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from client_sdk.client import Client
from client_sdk.data import Samples
from client_sdk.errors import ApiError, PotstillError
from contract.wire.devices import LONGEST_PASS, Heartbeat, TrainAssignment

_PATIENCE = 10.0  # seconds: the next one comes soon


class Heartbeats:
    """Sends heartbeats for one round, at once and then as often as the assignment asks; a context manager.

    A heartbeat that fails is not tried again: the next one says the same. When the service says that it wants none
    (the round is over, the client was revoked), there are no more; training goes on and its upload gets the answer.

    The thread that beats is not the one that trains, so a beat says that training goes on only while the passes that it
    counts do.
    """

    def __init__(self, client: Client, assignment: TrainAssignment, samples: Samples):
        self._client, self._round = client, assignment.round.id
        self._every = assignment.round.heartbeat_seconds
        self._lock, self._ended = threading.Lock(), threading.Event()
        plan = assignment.local
        self._of = max(1, plan.epochs * samples.steps(plan.batch_size)) if plan.privacy is None else None
        self._epoch = self._step = self._passes = 0
        self._computes, self._began = False, 0.0
        self._longest: float | None = None
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

    def expect(self, pass_seconds: float | None) -> None:
        """Note how long a pass took before, as far as that is known."""
        with self._lock:
            self._longest = pass_seconds

    def passing(self) -> None:
        """Note that a batch goes through the network now."""
        now = time.monotonic()
        with self._lock:
            if self._computes:
                self._longest = max(self._longest or 0.0, now - self._began)
            self._computes, self._began = True, now
            self._passes += 1

    def rest(self) -> None:
        """Note that the training is over, or has failed: nothing is counted from here on."""
        with self._lock:
            self._computes = False

    def beat(self) -> Heartbeat:
        """Return what is said now."""
        with self._lock:
            longest = None if self._longest is None else min(round(self._longest, 3), LONGEST_PASS)
            return Heartbeat(
                epoch=self._epoch,
                step=self._step if self._of is None else min(self._step, self._of),
                of=self._of,
                passes=self._passes if self._computes else None,
                pass_seconds=longest if self._computes else None,
            )

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
            wait = float(self._every or 0)
            try:
                wait = float(self._client.heartbeat(self._round, self.beat(), timeout=_PATIENCE).heartbeat_seconds)
            except ApiError as error:
                if error.status in (401, 403, 404, 405, 409, 422):
                    return
            except PotstillError:
                pass
            self._ended.wait(max(wait, 0.5))
