"""A function of the user's in a thread of its own, so that a round's end, Ctrl-C or a stop reach whoever waits for it.

A thread cannot be ended from outside. One that does not come back is left behind with the process's other threads; it
is a daemon, so the process can end, and no other run begins in the process while it lives.
"""

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any

from client_sdk.errors import TrainingError, UsageError

_LOOK = 0.2
"""Seconds between two looks at whether the round goes on."""
_left: list[threading.Thread] = []


class Stopped(Exception):
    """The run was stopped while something was trained; nothing of it is sent."""


def check_none_left() -> None:
    """Refuse to begin beside a function that an earlier run left behind: it draws from the same random numbers.

    Raises:
        UsageError: naming its thread.
    """
    _left[:] = [thread for thread in _left if thread.is_alive()]
    if _left:
        raise UsageError(
            f"train: the function of an earlier run still computes in this process (thread {_left[0].name!r}); end the "
            "process and start again"
        )


class Watched:
    """Runs a function and waits for it as long as it is wanted.

    Args:
        name: of the thread.
        stop: set when the function is to return.
        over: says why what it does is not wanted any more; None: it is.
        grace: seconds that it may take to return after that.
    """

    def __init__(self, name: str, stop: threading.Event, over: Callable[[], str | None], grace: float):
        self._name, self._stop, self._over, self._grace = name, stop, over, grace
        self._done = threading.Event()
        self._answer: Any = None
        self._error: BaseException | None = None

    def run(self, function: Callable[[], Any]) -> Any:
        """Return what `function` returns, or raise what it raises.

        Raises:
            TrainingError: it did not come back.
            KeyboardInterrupt: Ctrl-C, after the function has returned or the time for that is over.
        """
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(self._call, function), name=self._name, daemon=True)
        thread.start()
        try:
            why = self._wait()
        except BaseException:
            self._stop.set()
            self._done.wait(self._grace)  # a second Ctrl-C ends this, too
            raise
        finally:
            if not self._done.is_set():
                _left.append(thread)
        if why is not None:
            raise TrainingError(
                f"train: the function has not come back {self._grace:g} s after task.should_stop was set ({why}); its "
                f"thread {thread.name!r} cannot be ended from outside. Nothing was uploaded. End this process and "
                "start the device again: it goes on with the round of then. Return when task.should_stop is true"
            )
        if self._error is not None:
            raise self._error
        return self._answer

    def _wait(self) -> str | None:
        """Wait for the function; return None when it is back, or why it was to be, when it is not."""
        why, ends = None, 0.0
        while not self._done.wait(_LOOK):
            if why is not None:
                if time.monotonic() > ends:
                    return why
                continue
            why = self._over()
            if why is not None:
                self._stop.set()
                ends = time.monotonic() + self._grace
        return None

    def _call(self, function: Callable[[], Any]) -> None:
        try:
            self._answer = function()
        except BaseException as error:  # noqa: BLE001  # handed to who waits
            self._error = error
        finally:
            self._done.set()
