"""Lines of logs as JSON objects, and whose work a line is about: the ids of its request, federation, round or job.

By hand and not by python-json-logger: the command line and a device's base installation have this module too, and it
is one function of the standard library's own record.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

LogFormat = Literal["text", "json"]
_ABOUT: ContextVar[dict[str, str]] = ContextVar("potstill_log_about")


def begin(**ids: str) -> None:
    """Say whose work this task or thread does from here on; what is started from it knows, too."""
    _ABOUT.set(dict(ids))


def note(**ids: str | None) -> None:
    """Add what has become known of the work at hand, also for those who began it; outside of any, nothing."""
    _ABOUT.get({}).update({name: value for name, value in ids.items() if value})


@contextmanager
def about(**ids: str | None) -> Iterator[None]:
    """Say whose work is done inside."""
    before = _ABOUT.set({name: value for name, value in ids.items() if value})
    try:
        yield
    finally:
        _ABOUT.reset(before)


def known() -> dict[str, str]:
    """Return the ids of the work at hand."""
    return dict(_ABOUT.get({}))


class JsonLine(logging.Formatter):
    """One record, one JSON object in one line of ASCII: what strangers send forges no line and steers no terminal.

    `time` is UTC; the ids are those of the work at hand; a record's `fields` (of `extra`) stand beside the message.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment.removesuffix("+00:00") + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **known(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=str)
