"""Says while a device trains that it is alive and how far: from a thread of its own, sparingly, never in the way."""

import contextvars
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Self

from client_sdk.client import Client
from client_sdk.data import Samples
from client_sdk.errors import ApiError, PotstillError
from contract.wire.devices import LONGEST_PASS, Heartbeat, TrainAssignment

_PATIENCE = 10.0  # seconds: the next one comes soon
_MARGIN = timedelta(seconds=60)  # beyond a deadline that may have moved while the service could not be reached
_FINAL = (401, 403, 404, 409)


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
        steps = samples.steps(plan.batch_size) if plan.privacy is None else None
        self._of = None if steps is None else max(1, plan.epochs * steps)
        self._epoch = self._step = self._passes = 0
        self._computes, self._began = False, 0.0
        self._longest: float | None = None
        self._closes_at, self._refused = assignment.round.deadline_at, ""
        knows = contextvars.copy_context()  # whose trace its requests belong to
        self._thread = threading.Thread(target=knows.run, args=(self._run,), name="heartbeat", daemon=True)

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

    def reported(self, step: int | None, of: int | None) -> None:
        """Note what a training of the user's own told; from its second word on silence can be too long."""
        now = time.monotonic()
        with self._lock:
            self._step = self._step if step is None else max(0, step)
            self._of = self._of if of is None else max(1, of)
            if not self._computes:
                self._longest, self._began = max(self._longest or 0.0, now - self._began), now
        self.passing()

    def over(self) -> str | None:
        """Return why the round takes no update of this device any more; None: it does, for all that is known here.

        The service says so in answer to a heartbeat. Where it cannot be reached its clock does, as it was last told.
        """
        with self._lock:
            refused, closes = self._refused, self._closes_at
        now = self._client.service_time()
        if refused or now is None or now < closes + _MARGIN:
            return refused or None
        return f"its deadline, {closes:%Y-%m-%d %H:%M:%S} UTC, is over"

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
        self._began = time.monotonic()
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
                receipt = self._client.heartbeat(self._round, self.beat(), timeout=_PATIENCE)
                wait = float(receipt.heartbeat_seconds)
                with self._lock:
                    self._closes_at = max(receipt.closes_at, receipt.deadline_at)
            except ApiError as error:
                if error.status in _FINAL:
                    with self._lock:
                        self._refused = error.detail
                    return
                if error.status in (405, 422):
                    return
            except PotstillError:
                pass
            self._ended.wait(max(wait, 0.5))
