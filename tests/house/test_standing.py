"""What stays of `potstill up`: the process with its open files, its children, and the API's word about the worker."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from potstill.standing import Plan, Program, ask, useless

ROOT = Path(__file__).parents[2]
BECOMES = """
import os, sys
from pathlib import Path
from potstill.standing import Plan, Program, become
kept = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
says = "import os, time; print('kid', os.getppid(), 'hällo', os.getpid(), flush=True); time.sleep(60)"
kid = [sys.executable, "-c", says]
other = Program("other", [sys.executable, "-c", "print('short')"], [])
plan = Plan("http://127.0.0.1:1", sys.argv[1], [Program("kid", kid, [kept]), other], False, "latin-1")
print("becomes", kept, flush=True)
become(plan, [kept])
"""


class Api(BaseHTTPRequestHandler):
    """Answers what it is told to, and notes what it is asked."""

    answer: tuple[int, Any] = (200, {})
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        code, body = self.answer
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def api() -> Iterator[tuple[str, type[Api]]]:
    class Told(Api):
        asked: list[str] = []

    with HTTPServer(("127.0.0.1", 0), Told) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", Told
        server.shutdown()


def test_a_plan_is_handed_on_whole() -> None:
    programs = [Program("api", ["a", "ü"], [3]), Program("w", [], [], True)]
    plan = Plan("http://[::1]:1", "/a b/url", programs, True, "utf-8")
    assert Plan.of_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((200, {"checks": {"process": {"ok": True, "detail": "last heard 1 s ago"}}}), None),
        ((503, {"checks": {"process": {"ok": False, "detail": "last heard 70 s ago"}}}), "last heard 70 s ago"),
        ((503, {"checks": {"database": {"ok": False, "detail": "OperationalError"}}}), None),
        ((429, {"title": "too many"}), None),
        ((200, b"<html>"), None),
        ((200, ["checks"]), None),
    ],
)
def test_the_worker_is_of_no_use_only_where_the_api_says_so(
    api: tuple[str, type[Api]], answer: tuple[int, Any], why: str | None
) -> None:
    url, told = api
    told.answer = answer
    assert useless(url, 12) == why
    assert told.asked == ["/readyz?pid=12"]


def test_an_api_that_does_not_answer_says_nothing(api: tuple[str, type[Api]]) -> None:
    assert ask("http://127.0.0.1:1", "/healthz") is None
    assert useless("http://127.0.0.1:1", 12) is None
    url, told = api
    told.answer = (200, b"x" * 100_000)
    assert ask(url, "/healthz") == (200, b"x" * 100_000)


def test_the_process_its_files_and_its_signals_stay(tmp_path: Path) -> None:
    file = tmp_path / "url"
    process = subprocess.Popen(
        [sys.executable, "-c", BECOMES, str(file)], cwd=ROOT, stdout=subprocess.PIPE, process_group=0
    )
    assert process.stdout is not None
    try:
        kept = int(process.stdout.readline().split()[1])
        said = process.stdout.readline()
        while b"kid" not in said.partition(b"|")[2]:
            said = process.stdout.readline()
        assert f"kid {process.pid} hällo".encode("latin-1") in said
        assert sys.platform != "linux" or os.path.samefile(f"/proc/{process.pid}/fd/{kept}", file)
        assert psutil.Process(process.pid).cmdline()[-3:-1] == ["up", "http://127.0.0.1:1"]
        kid = psutil.Process(int(said.split()[-1]))
        process.send_signal(signal.SIGINT)
        assert b"stopped" in process.stdout.read()
        assert process.wait(20) == 0
        assert not kid.is_running()
        assert not file.exists()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_signal_in_between_is_heard_by_who_stops_the_children(tmp_path: Path) -> None:
    raised = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, (2,)); os.kill(os.getpid(), 2)\nbecome(plan"
    program = [sys.executable, "-c", BECOMES.replace("become(plan", raised), str(tmp_path / "url")]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"stopping" in done.stdout
