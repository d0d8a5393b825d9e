"""What a person sees while a device works: one bar per round on stderr, a line when something happens."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from tqdm import tqdm

from client_sdk.reports import Report

logger = logging.getLogger("client_sdk")


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


class Progress:
    """Shows bars and lines on stderr when `shown`; lines go to the log in any case."""

    def __init__(self, shown: bool):
        self.shown = shown
        self._last = ""

    def say(self, line: str) -> None:
        """Tell something, once in a row."""
        if line == self._last:
            return
        self._last = line
        logger.info(line)
        if self.shown:
            with tqdm.external_write_mode():
                told = _Told(sys.stderr)
                told.write(f"{line}\n")
                told.flush()

    @contextmanager
    def bar(self, title: str, epochs: int) -> Iterator[Callable[[int, float], None]]:
        """Show a bar over epochs; yields the function to call after each epoch with its number and loss."""
        self._last = ""
        with tqdm(
            total=epochs, desc=title, unit="epoch", disable=not self.shown, dynamic_ncols=True, file=_Told(sys.stderr)
        ) as bar:

            def done(epoch: int, loss: float) -> None:
                bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
                bar.update(epoch - bar.n)

            yield done

    @contextmanager
    def reports(self, title: str, epochs: int) -> Iterator[Callable[[Report], None]]:
        """Show a bar over the steps that a training of the user's own tells of; yields the function to tell it."""
        self._last = ""
        with tqdm(desc=title, unit="step", disable=not self.shown, dynamic_ncols=True, file=_Told(sys.stderr)) as bar:

            def told(report: Report) -> None:
                figures = report.metrics if report.loss is None else {"loss": report.loss, **report.metrics}
                bar.set_postfix_str(", ".join(f"{name} {value:.4g}" for name, value in figures.items()), refresh=False)
                bar.total = bar.total if report.of is None else report.of
                bar.update(0 if report.step is None else report.step - bar.n)

            yield told

    @contextmanager
    def sending(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """Yield what is told how many bytes of how many were sent; the bar appears with the first word, and goes back
        when the service has less than was sent.
        """
        bars: list[tqdm] = []

        def sent(done: int, of: int) -> None:
            if not bars:
                options = {"unit": "B", "unit_scale": True, "unit_divisor": 1024, "dynamic_ncols": True}
                options["file"] = _Told(sys.stderr)
                bars.append(tqdm(total=of, desc=title, initial=done, disable=not self.shown, **options))
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
