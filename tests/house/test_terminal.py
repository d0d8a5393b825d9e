"""What the command line says on terminals of any kind, to programs, and by its exit codes."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from potstill import exits, lazy
from potstill.console import speak_plainly

from .command_line import FEDERATION, Service, call
from .test_steering_commands import ROUND

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    told = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-m", "potstill", *words], env=told, capture_output=True, timeout=120)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252", "cp437"])
def test_a_terminal_that_is_not_utf_8_costs_no_exit_code(encoding: str) -> None:
    done = run("config", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"POTSTILL_DATABASE_URL" in done.stdout


def test_what_a_stream_cannot_show_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    speak_plainly()
    print("Gerät→Süd – 3 ± 1 … ██ 東")
    sys.stdout.flush()
    assert raw.getvalue().decode("latin-1") == "Gerät->Süd - 3 ± 1 ... ## ?\n"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("federation create --alpha 0.1 --alpha 1.0", "no such"),
        ("federation create --name a --name b", "--name"),
        ("federation list --url http://a --url http://b", "--url"),
        ("round close fed_1:1 --force --force", "--force"),
        ("simulate --alpha 0.1 --alpha 1.0", "--alpha"),
        ("client run --federation a --data x --federation b", "--federation"),
    ],
)
def test_an_option_that_is_given_twice_is_refused(words: str, option: str, service: Service) -> None:
    result = call(*words.split())
    assert result.exit_code == exits.USAGE
    if option.startswith("--"):
        assert f"{option} is given twice" in " ".join(result.stderr.replace("│", " ").split())
    assert service.asked == []


def test_a_list_may_be_given_more_than_once(service: Service) -> None:
    service.on("POST", "/v1/jobs/job_1/retry", {}, 404)
    assert "given twice" not in call("job", "retry", "job_1", "--exclude", "a", "--exclude", "b").stderr


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (404, "not-found", exits.MISSING),
        (410, "removed", exits.MISSING),
        (409, "invalid-transition", exits.REFUSED),
        (403, "forbidden", exits.REFUSED),
        (422, "invalid-field", exits.REFUSED),
        (401, "unauthorized", exits.TOKEN),
        (500, "internal", exits.UNREACHABLE),
    ],
)
def test_exit_codes_tell_what_kind_of_error_it_was(service: Service, status: int, kind: str, code: int) -> None:
    problem = {"type": f"urn:potstill:problem:{kind}", "title": "t", "status": status, "detail": "because"}
    service.on("GET", "/v1/jobs/job_1", problem, status)
    plain = call("job", "show", "job_1")
    assert (plain.exit_code, "because" in plain.stderr) == (code, True)
    told = call("job", "show", "job_1", "--json")
    error = json.loads(told.stderr)["error"]
    assert told.exit_code == error["exit_code"] == code
    assert (error["kind"], error["status"], told.stdout) == (kind, status, "")


@pytest.mark.parametrize(("state", "code"), [("failed", exits.FAILED), ("finished", 0), ("cancelled", 0)])
def test_who_watches_to_the_end_is_told_by_the_exit_code(service: Service, state: str, code: int) -> None:
    service.on("GET", "/v1/federations/fed_1", FEDERATION | {"state": state})
    service.on("GET", "/v1/federations/fed_1/events", {"items": [], "next": 0})
    assert call("federation", "watch", "fed_1").exit_code == code


def test_errors_before_anything_is_asked_are_json_too(service: Service) -> None:
    unknown = call("federation", "list", "--json", "--nix")
    assert (unknown.exit_code, json.loads(unknown.stderr)["error"]["exit_code"]) == (exits.USAGE, exits.USAGE)
    twice = call("federation", "list", "--json", "--json")
    assert "twice" in json.loads(twice.stderr)["error"]["message"]
    service.on("GET", "/v1/federations", {"items": [], "next": None})
    nobody = call("federation", "show", "letters", "--json")
    assert (nobody.exit_code, "letters" in json.loads(nobody.stderr)["error"]["message"]) == (exits.MISSING, True)


def test_every_exit_code_is_documented() -> None:
    page = (ROOT / "docs" / "problems.md").read_text(encoding="utf-8")
    for code, meaning in exits.MEANING.items():
        assert f"| {code} | {meaning} |" in page


def test_cancel_asks_first_and_refuses_where_nobody_can_answer(service: Service) -> None:
    service.on("POST", "/v1/federations/fed_1/cancel", FEDERATION | {"state": "cancelled"})
    refused = call("federation", "cancel", "fed_1")
    assert refused.exit_code == exits.USAGE and "--yes" in refused.stderr
    assert service.asked == []
    assert call("federation", "cancel", "fed_1", "--yes").exit_code == 0
    assert len(service.asked) == 1


def test_help_loads_no_command_and_names_them_all() -> None:
    program = (
        "import sys; from potstill.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith(('pydantic', 'contract.wire', 'potstill.commands', 'httpx'))])"
    )
    told = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=told, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(f" {name} " in done.stdout for name in (*lazy.GROUPS, *lazy.COMMANDS, "up"))


@pytest.mark.parametrize("name", [*lazy.GROUPS, *lazy.COMMANDS])
def test_every_command_says_what_it_is_for(name: str) -> None:
    assert (lazy.GROUPS | lazy.COMMANDS)[name]
    assert lazy.load(name).help


def test_a_round_s_table_is_rounded_and_shows_no_step_of_who_has_answered(service: Service) -> None:
    told: dict[str, Any] = {"client_id": "cli_1", "prototype": "main", "progress": {"step": 0, "of": 2}}
    figures = {"seconds": 12.345678, "size": 10, "weight": 0.12345678901234567, "teacher_weight": 1e-9}
    answered = told | figures | {"name": "ward-7", "state": "answered"}
    waiting = told | {"name": "ward-8", "state": "training"}
    service.on("GET", "/v1/rounds/rnd_2", ROUND | {"state": "collecting", "participants": [answered, waiting]})
    shown = call("round", "show", "rnd_2").output
    first, second = (next(line for line in shown.splitlines() if name in line) for name in ("ward-7", "ward-8"))
    assert "12.3 " in first and "0.1235" in first and "1.00e-09" in first and "step" not in first
    assert "step 0 of 2" in second


def test_a_model_is_downloaded_by_its_federation_s_name(service: Service, tmp_path: Path) -> None:
    import hashlib

    import httpx

    body = b"weights"
    digest = f"sha256-{hashlib.sha256(body).hexdigest()}"
    reference = {"id": "mdl_1", "digest": digest, "size": 7, "url": "/v1/models/mdl_1/weights"}
    place = {"federation_id": "fed_1", "round_id": None, "round": 2, "prototype": "main", "role": "global"}
    model = reference | place | {"architecture": "mlp", "created_at": "2026-01-01T00:00:00Z"}
    service.on("GET", "/v1/federations", {"items": [FEDERATION], "next": None})
    service.on("GET", "/v1/federations/fed_1", FEDERATION | {"models": {"main": reference}})
    service.on("GET", "/v1/models/mdl_1", model)
    service.answers["GET", "/v1/models/mdl_1/weights"] = lambda request: httpx.Response(200, content=body)
    target = tmp_path / "final.safetensors"
    result = call("model", "download", "digits", str(target))
    assert result.exit_code == 0, result.stderr
    assert target.read_bytes() == body and "mdl_1" in result.output
