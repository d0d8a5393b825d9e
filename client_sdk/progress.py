"""What a person sees while a device works: one bar per round on stderr, a line when something happens."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

logger = logging.getLogger("client_sdk")


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
                print(line, file=sys.stderr, flush=True)

    @contextmanager
    def bar(self, title: str, epochs: int) -> Iterator[Callable[[int, float], None]]:
        """Show a bar over epochs; yields the function to call after each epoch with its number and loss."""
        self._last = ""
        with tqdm(total=epochs, desc=title, unit="epoch", disable=not self.shown, dynamic_ncols=True) as bar:

            def done(epoch: int, loss: float) -> None:
                bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
                bar.update(epoch - bar.n)

            yield done
