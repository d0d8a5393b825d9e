"""What the log shows of what strangers send."""

import io
import logging

import pytest

from service.app import OneLine


@pytest.mark.parametrize("sign", ["\n", "\r", "\x1b", "\x85", "\x9b", "\u2028", "\x7f"])
def test_a_path_forges_no_line_and_steers_no_terminal(sign: str) -> None:
    """A path is logged as it is after decoding: %0a is a line break."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLine("%(levelname)s: %(message)s"))
    handler.handle(logging.makeLogRecord({"levelname": "INFO", "msg": "GET %s", "args": (f"/a{sign}INFO: forged é",)}))
    written = stream.getvalue()
    assert sign not in written.removesuffix("\n")
    assert written.startswith("INFO: GET /a\\") and written.endswith("INFO: forged é\n")


def test_times_are_utc_and_say_so() -> None:
    record = logging.makeLogRecord({"msg": "here", "created": 1_767_225_600.25, "msecs": 250.0})
    assert OneLine("%(asctime)s %(message)s").format(record) == "2026-01-01T00:00:00.250Z here"


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("why")
    except ValueError as error:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": (ValueError, error, error.__traceback__)})
    assert OneLine("%(message)s").format(record).splitlines()[-1] == "ValueError: why"
