"""Lines of logs that are JSON objects, and whose work they say they are about."""

import json
import logging
import sys
import threading
from contextvars import copy_context
from typing import Any

from contract import log_lines
from contract.log_lines import JsonLine


def line(message: str = "here", **more: Any) -> dict[str, Any]:
    record = logging.makeLogRecord({"name": "worker", "levelname": "INFO", "msg": message, "created": 1_767_225_600.25})
    record.__dict__ |= more
    text = JsonLine().format(record)
    assert text.isascii() and text.isprintable(), "one line, which steers no terminal"
    told: dict[str, Any] = json.loads(text)
    return told


def test_a_line_has_time_level_logger_and_message() -> None:
    told = line("GET %s", args=("/a\nforged \x1b é\u2028",))
    expected = {"time": "2026-01-01T00:00:00.250Z", "level": "info", "logger": "worker"}
    assert told == expected | {"message": "GET /a\nforged \x1b é\u2028"}


def test_an_exception_is_text_and_what_is_no_json_is_too() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        told = line(exc_info=sys.exc_info(), fields={"status": 200, "what": {1}}, stack_info="Stack (most recent …")
    assert told["exception"].startswith("Traceback") and told["exception"].endswith("ValueError: why")
    assert (told["status"], told["what"], told["stack"]) == (200, "{1}", "Stack (most recent …")


def test_ids_are_those_of_the_work_at_hand() -> None:
    with log_lines.about(job_id="job_1", round_id=None):
        assert line()["job_id"] == "job_1" and "round_id" not in line()
        log_lines.note(federation_id="fed_1", client_id=None)
        assert log_lines.known() == {"job_id": "job_1", "federation_id": "fed_1"}
    assert log_lines.known() == {}


def test_what_a_thread_learns_is_known_to_who_began_it() -> None:
    def work() -> None:
        log_lines.begin(request_id="r1")
        thread = threading.Thread(target=copy_context().run, args=(lambda: log_lines.note(client_id="cli_1"),))
        thread.start()
        thread.join()
        assert log_lines.known() == {"request_id": "r1", "client_id": "cli_1"}

    copy_context().run(work)
    log_lines.note(client_id="cli_2")  # of no work at all
    assert log_lines.known() == {}, "it stays with the task that said so"
