"""The worker of an embedded installation: `python -m worker alone`, without Celery and without a broker.

It hears of jobs by the bells of the queue folder. What a job is, and how it is done, is the same as below Celery.
"""

import logging
import signal
import time
from types import FrameType

from contract import traces
from contract.log_lines import JsonLine, LogFormat
from worker.ledger.opening import Hints, load, opened
from worker.runner import Runner

_STOPS = (signal.SIGINT, signal.SIGTERM)


class UtcFormatter(logging.Formatter):
    """The lines of Celery's worker, in UTC."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03dZ"


class Wish:
    """Whether this process should end: the first signal says so, a second one ends it at once."""

    def __init__(self) -> None:
        self.told = False

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Take the signal."""
        self.told = True
        for each in _STOPS:
            signal.signal(each, signal.SIG_DFL)


def _log_to_stderr(level: str, form: LogFormat) -> None:
    handler = logging.StreamHandler()
    text = UtcFormatter("[%(asctime)s: %(levelname)s/%(processName)s] %(message)s")
    handler.setFormatter(JsonLine() if form == "json" else text)
    logging.basicConfig(level=level, handlers=[handler])


def main() -> int:
    """Do jobs until SIGTERM or SIGINT; return the exit code. A long job is not waited for: it is given back.

    Raises:
        SystemExit: this worker cannot begin; the log says why.
    """
    traces.name_program("potstill-worker")
    settings = load()
    _log_to_stderr(settings.log_level.upper(), settings.log_format)
    runner, hints, wish = Runner(opened(settings)), Hints(settings), Wish()
    for number in _STOPS:
        signal.signal(number, wish.hear)
    runner.start()
    while not wish.told:
        if hints.come():
            runner.wake()
    runner.close()
    hints.close()
    return 0
