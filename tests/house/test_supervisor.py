"""The supervisor with small children: restart, stop, nothing left behind."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from potstill import supervisor
from potstill.console import CliError
from potstill.home import Home
from potstill.supervisor import ONE_SIGNAL, ChildSpec, Printer, Supervisor
from potstill.up import bind, programs
from service.config import Settings

# Says its process id and waits; a polite one ends on SIGTERM, a stubborn one does not.
POLITE = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
STUBBORN = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(60)"
PARENT = """
import os, subprocess, sys, time
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(os.getpid(), inner.pid, flush=True); time.sleep(60)
"""
ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, f"not within 20 s: {what}"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


class Run:
    """A supervisor of one child in another process, as `potstill up` is one."""

    def __init__(self, child: str, deadline: float = 20.0):
        program = (
            "import sys; from potstill.supervisor import ChildSpec, Supervisor\n"
            f"spec = ChildSpec('kid', [sys.executable, '-c', {child!r}])\n"
            f"sys.exit(Supervisor([spec], deadline={deadline}).run())"
        )
        self.process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as stream:
            self.lines.extend(iter(stream.readline, ""))

    def pids(self) -> list[int]:
        """Process ids that the child has said so far, of every start."""
        said = (line.split("|", 1)[1].split() for line in list(self.lines) if line.startswith("kid"))
        return [int(word) for words in said if all(w.isdigit() for w in words) for word in words]

    def started(self, count: int = 1) -> list[int]:
        until(lambda: len(self.pids()) >= count, f"{count} process ids in {self.lines}")
        return self.pids()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()


def test_a_killed_child_is_started_again() -> None:
    with Run(POLITE) as run:
        first = run.started()[0]
        os.kill(first, signal.SIGKILL)
        second = run.started(2)[1]
        assert second != first
        assert any("killed by SIGKILL; starting again" in line or "killed by SIGKILL)" in line for line in run.lines)
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(20) == 0
        assert gone(second)


def test_interrupt_stops_and_leaves_nothing() -> None:
    with Run(PARENT) as run:
        outer, inner = run.started(2)
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(20) == 0
        until(lambda: gone(outer) and gone(inner), "child and grandchild end")


def test_what_a_killed_child_leaves_ends_before_its_successor_starts() -> None:
    with Run(PARENT) as run:
        outer, inner = run.started(2)
        os.kill(outer, signal.SIGKILL)
        run.started(4)
        assert gone(inner)


def test_second_interrupt_kills() -> None:
    with Run(STUBBORN) as run:
        pid = run.started()[0]
        run.process.send_signal(signal.SIGINT)
        until(lambda: any("stopping" in line for line in run.lines), "the first is heard")
        assert not gone(pid)

        def asked_again() -> bool:  # two signals at once count as one, so this may take several
            run.process.send_signal(signal.SIGINT)
            time.sleep(ONE_SIGNAL + 0.05)
            return run.process.poll() is not None

        until(asked_again, "it gives up waiting")
        assert run.process.returncode == 1
        until(lambda: gone(pid), "the child is killed")


def test_one_wish_sent_twice_is_one_wish() -> None:
    with Run(STUBBORN) as run:
        pid = run.started()[0]
        run.process.send_signal(signal.SIGTERM)
        run.process.send_signal(signal.SIGTERM)
        until(lambda: any("stopping" in line for line in run.lines), "it is heard")
        time.sleep(0.2)
        assert run.process.poll() is None and not gone(pid)


def test_deadline_kills() -> None:
    with Run(STUBBORN, deadline=0.2) as run:
        pid = run.started()[0]
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(20) == 1
        until(lambda: gone(pid), "the child is killed")


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_children_end_with_a_killed_supervisor() -> None:
    with Run(POLITE) as run:
        pid = run.started()[0]
        run.process.kill()
        until(lambda: gone(pid), "the child notices")


def test_stop_from_the_program_itself() -> None:
    stream = io.StringIO()
    supervisor = Supervisor([ChildSpec("kid", [sys.executable, "-c", POLITE])], stream)
    assert supervisor.run(started=supervisor.stop) == 0
    assert supervisor.children[0].ended()
    assert "stopped" in stream.getvalue()


def test_printer_prefixes_lines() -> None:
    stream = io.StringIO()
    printer = Printer(stream, ["api", "worker"])
    printer.line("api", "hello")
    printer.line("worker", "there")
    assert stream.getvalue() == "api    | hello\nworker | there\n"


def test_printer_passes_objects_on_and_makes_objects_of_lines() -> None:
    stream = io.StringIO()
    printer = Printer(stream, ["api"], objects=True)
    for text in ('{"message": "here", "job_id": "job_1"}', "Traceback \x1b[0m", "[1]"):
        printer.line("api", text)
    own, made, list_ = (json.loads(line) for line in stream.getvalue().splitlines())
    assert own == {"message": "here", "job_id": "job_1", "program": "api"}
    assert made.items() >= {"message": "Traceback \x1b[0m", "program": "api", "logger": "api", "level": "info"}.items()
    assert made["time"].endswith("Z") and list_["message"] == "[1]"


def test_taken_port_is_told_with_a_free_one() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CliError, match=rf"port {port} is already in use .* potstill up --port (\d+)") as caught:
            bind("127.0.0.1", port)
        proposed = int(str(caught.value).rsplit(" ", 1)[1])
        with bind("127.0.0.1", proposed):
            assert proposed != port


def test_foreign_address_is_told() -> None:
    with pytest.raises(CliError, match="--host 127.0.0.1"):
        bind("203.0.113.1", 0)


def test_up_on_a_taken_port_starts_nothing(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        up = [sys.executable, "-m", "potstill", "up", "--port", port, "--home", str(tmp_path / "home")]
        result = subprocess.run(up, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert result.returncode == 1
    assert f"port {port} is already in use" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "home" / "potstill.db").exists()


def test_one_folder_has_one_service(tmp_path: Path) -> None:
    first, second = Home(tmp_path), Home(tmp_path)
    first.lock()
    with pytest.raises(CliError, match="already running"):
        second.lock()
    for home in (first, second):
        home.unlock()


def test_token_file_is_for_its_owner_only(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    home.write(home.token_file, "pst_op_1")
    assert home.token_file.stat().st_mode & 0o077 == 0
    assert home.path.stat().st_mode & 0o077 == 0
    assert home.read(home.token_file) == "pst_op_1"


def test_the_api_gets_the_socket() -> None:
    with bind("127.0.0.1", 0) as listener:
        api, worker = programs(listener, Settings())
        assert listener.fileno() in api.pass_fds and str(listener.fileno()) in api.argv
        assert not worker.pass_fds


def test_a_child_that_lives_and_does_nothing_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must be found of no use twice in a row; once may be chance."""
    monkeypatch.setattr(supervisor, "PROBE_AFTER", 0.1)
    monkeypatch.setattr(supervisor, "PROBE_EVERY", 0.1)
    stream, asked = io.StringIO(), list[int]()

    def probe(pid: int) -> str | None:
        asked.append(pid)
        return None if len(asked) in (1, 3) or pid != asked[0] else "deaf for 70 s"

    spec = ChildSpec("kid", [sys.executable, "-c", POLITE], probe=probe)
    child = supervisor.Child(spec, Printer(stream, ["kid"]))
    try:
        child.start()
        first = child.pid

        def started_anew() -> bool:
            child.tend()
            return child.pid is not None and child.pid != first

        until(started_anew, "another start")
        assert asked.count(asked[0]) == 5, "well, deaf, well, deaf, deaf"
        assert "deaf for 70 s: killing it" in stream.getvalue()
    finally:
        child.kill()
        child.close()
