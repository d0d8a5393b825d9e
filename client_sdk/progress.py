"""What a person sees while a device works: a bar per round in a terminal or notebook, lines of the log elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, TextIO

from tqdm import tqdm

from client_sdk.errors import UsageError
from client_sdk.reports import Report

logger = logging.getLogger("client_sdk")
Wanted = bool | Literal["bar", "log"]
"""Of `train_and_push`: True takes bars where somebody looks at them, and else lines of the log; False: nothing."""
LOG_SECONDS = 10.0


class _Told:
    """Stderr, where a letter that it cannot show, or a reader that went away, is no reason to stop training."""

    def __init__(self, stream: TextIO | None):
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "ascii"

    def write(self, text: str) -> int:
        """Write what can be written."""
        if self._stream is not None:
            with suppress(OSError, ValueError):
                try:
                    self._stream.write(text)
                except UnicodeEncodeError:
                    self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        """Flush it."""
        if self._stream is not None:
            with suppress(OSError, ValueError):
                self._stream.flush()

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Return its file descriptor, which tells tqdm how wide it is."""
        if self._stream is None:
            raise OSError("there is no stderr")
        return self._stream.fileno()


class _Lines:
    """What a bar shows, as lines at least `LOG_SECONDS` apart; the last one comes in any case."""

    def __init__(self, tell: Callable[[str], None], desc: str, total: int | None, unit: str, initial: int = 0):
        self.n, self.total = initial, total
        self._tell, self._desc, self._unit, self._figures = tell, desc, unit, ""
        self._told_at, self._told = time.monotonic(), ""

    def set_postfix_str(self, figures: str, refresh: bool = True) -> None:
        """Note figures, which stand at the end of the next line."""
        self._figures = figures

    def update(self, more: int) -> None:
        """Note that more is done."""
        self.n += more
        self.refresh()

    def refresh(self) -> None:
        """Tell how far it is, if the last line is old enough."""
        if time.monotonic() - self._told_at >= LOG_SECONDS:
            self._line()

    def reset(self, total: int) -> None:
        """Begin again, with another length."""
        self.n, self.total = 0, total

    def close(self) -> None:
        """Tell where it ended."""
        self._line()

    def _line(self) -> None:
        of = "" if self.total is None else f"/{self.total}"
        line = f"{self._desc}: {self._unit} {self.n}{of}" + (f", {self._figures}" if self._figures else "")
        if line != self._told:
            self._tell(line)
        self._told_at, self._told = time.monotonic(), line


def in_kernel() -> bool:
    """Whether this runs in the kernel of a notebook, whose stderr is no terminal and which shows bars all the same."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def _chosen(wanted: Wanted) -> Literal["bar", "log"] | None:
    if isinstance(wanted, bool):
        seen = in_kernel() or _Told(sys.stderr).isatty()
        return ("bar" if seen else "log") if wanted else None
    if wanted not in ("bar", "log"):
        raise UsageError(f"progress: {wanted!r} is unknown; pass True, False, 'bar' or 'log'")
    return wanted


class Progress:
    """Shows bars and lines on stderr, or lines alone, or nothing; lines go to the log in any case.

    Raises:
        UsageError: `wanted` is none of these.
    """

    def __init__(self, wanted: Wanted):
        self._how = _chosen(wanted)
        self._last = ""

    def say(self, line: str) -> None:
        """Tell something, once in a row."""
        if line == self._last:
            return
        self._last = line
        self._tell(line)

    def _tell(self, line: str) -> None:
        logger.info(line)
        logged = self._how == "log" and logger.hasHandlers()  # a program without logging would show nothing
        if self._how is not None and not logged:
            with tqdm.external_write_mode():
                told = _Told(sys.stderr)
                told.write(f"{line}\n")
                told.flush()

    def _open(self, title: str, unit: str, total: int | None = None, initial: int = 0, **shape: Any) -> Any:
        if self._how == "log":
            return _Lines(self._tell, title, total, unit, initial)
        given: dict[str, Any] = {"desc": title, "unit": unit, "total": total, "initial": initial, **shape}
        given |= {"disable": self._how is None, "dynamic_ncols": True}
        if self._how is not None and in_kernel():
            from tqdm import notebook

            if notebook.IProgress is not None:  # ipywidgets are there; without, the bar is of letters
                return notebook.tqdm(**given)
        return tqdm(file=_Told(sys.stderr), **given)

    @contextmanager
    def _shown(self, *what: Any, **shape: Any) -> Iterator[Any]:
        self._last = ""
        bar = self._open(*what, **shape)
        try:
            yield bar
        finally:
            bar.close()

    @contextmanager
    def bar(self, title: str, epochs: int) -> Iterator[Callable[[int, float], None]]:
        """Show a bar over epochs; yields the function to call after each epoch with its number and loss."""
        with self._shown(title, "epoch", epochs) as bar:

            def done(epoch: int, loss: float) -> None:
                bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
                bar.update(epoch - bar.n)

            yield done

    @contextmanager
    def reports(self, title: str, epochs: int) -> Iterator[Callable[[Report], None]]:
        """Show a bar over the steps that a training of the user's own tells of; yields the function to tell it."""
        with self._shown(title, "step") as bar:

            def told(report: Report) -> None:
                figures = report.metrics if report.loss is None else {"loss": report.loss, **report.metrics}
                bar.set_postfix_str(", ".join(f"{name} {value:.4g}" for name, value in figures.items()), refresh=False)
                step = bar.n if report.step is None else report.step
                if report.of not in (None, bar.total):
                    bar.reset(total=report.of)  # a notebook's bar learns its length in no other way
                bar.update(step - bar.n)

            yield told

    @contextmanager
    def sending(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """Yield what is told how many bytes of how many were sent; the bar appears with the first word, and goes back
        when the service has less than was sent.
        """
        bars: list[Any] = []

        def sent(done: int, of: int) -> None:
            if not bars:
                unit = "byte" if self._how == "log" else "B"
                bars.append(self._open(title, unit, of, done, unit_scale=True, unit_divisor=1024))
            bar = bars[0]
            if done < bar.n:
                bar.n = done
                bar.refresh()
            else:
                bar.update(done - bar.n)

        try:
            yield sent
        finally:
            for bar in bars:
                bar.close()
