"""How the API process writes its log: lines for people, or JSON objects for what collects them."""

import logging
import time

from contract.log_lines import JsonLine, LogFormat

log = logging.getLogger("service")
_SERVERS = ("uvicorn", "uvicorn.error", "uvicorn.access")


class OneLine(logging.Formatter):
    """One record, one line: a path or a name with a line break cannot forge the next one, nor steer a terminal.

    Times are UTC.
    """

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
    _SHOWN = {ord(each): repr(each)[1:-1] for each in map(chr, (*range(32), *range(127, 160), 0x2028, 0x2029))}

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without control characters; a traceback follows it as it is."""
        return super().formatMessage(record).translate(self._SHOWN)


def log_to_stderr(level: str, form: LogFormat) -> None:
    """Let our own lines out; a program that has set up logging by itself is left alone.

    The server that runs us has handlers of its own by now: where lines are JSON, its are, too.
    """
    log.setLevel(level)
    if not log.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        text = OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s")
        handler.setFormatter(JsonLine() if form == "json" else text)
        log.addHandler(handler)
    if form == "json":
        for each in (handler for name in _SERVERS for handler in logging.getLogger(name).handlers):
            each.setFormatter(JsonLine())
