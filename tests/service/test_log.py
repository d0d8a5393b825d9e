"""What the log shows of what strangers send."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from contract.log_lines import JsonLine
from service.infra.logs import OneLine, log_to_stderr
from tests.service.world import World


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


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the service logs, as JSON."""
    stream, logger = io.StringIO(), logging.getLogger("service")
    handler, level = logging.StreamHandler(stream), logger.level
    handler.setFormatter(JsonLine())
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_an_access_line_says_whose_request_it_was(world: World, lines: io.StringIO) -> None:
    fed = world.running(["a"])
    lines.truncate(lines.seek(0))
    world.op("GET", f"/v1/federations/{fed.id}/rounds?limit=1", headers={"X-Request-Id": "mine"})
    world.assignment(fed.devices["a"])
    one, other = ({**json.loads(line)} for line in lines.getvalue().splitlines() if '"service.access"' in line)
    path = f"/v1/federations/{fed.id}/rounds"
    assert one.items() >= {"request_id": "mine", "federation_id": fed.id, "method": "GET", "path": path}.items()
    assert one["level"] == "info" and one["status"] == 200 and "client_id" not in one
    assert other.items() >= {"federation_id": fed.id, "client_id": fed.devices["a"].id, "level": "debug"}.items()
    assert other["request_id"] not in ("", "mine")


@pytest.mark.parametrize(("form", "kind"), [("json", JsonLine), ("text", OneLine)])
def test_the_setting_says_what_lines_look_like(form: Any, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, servers = logging.Logger("service"), logging.Logger("uvicorn")
    servers.addHandler(logging.StreamHandler())
    found = {"uvicorn": servers}
    monkeypatch.setattr("service.infra.logs.log", ours)
    monkeypatch.setattr("service.infra.logs.logging.getLogger", lambda name="": found.get(name, logging.Logger(name)))
    log_to_stderr("INFO", form)
    assert type(ours.handlers[0].formatter) is kind
    assert isinstance(servers.handlers[0].formatter, JsonLine) == (form == "json")


@pytest.mark.parametrize(
    ("parent", "known"),
    [
        (f"00-{10:032x}-{11:016x}-01", True),
        (f"01-{10:032x}-{11:016x}-01-more", True),
        (f"ff-{10:032x}-{11:016x}-01", False),
        (f"00-{0:032x}-{11:016x}-01", False),
        (f"00-{10:032x}-{0:016x}-01", False),
        (f"00-{10:031x}-{11:016x}-01", False),
        ("x" * 4000, False),
    ],
)
def test_a_line_names_the_callers_trace(shared: World, lines: io.StringIO, parent: str, known: bool) -> None:
    shared.op("GET", "/v1/jobs", headers={"traceparent": parent})
    (told,) = (json.loads(line) for line in lines.getvalue().splitlines() if '"service.access"' in line)
    expected = {"trace_id": f"{10:032x}", "parent_span_id": f"{11:016x}"}
    assert {name: told[name] for name in expected if name in told} == (expected if known else {})
