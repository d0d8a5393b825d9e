"""What stays of `potstill up` once all is prepared: a small process that keeps the children running.

`up` reads settings and migrates the database with the service's own packages, 90 MB of them, and then becomes this
program (exec): the process, its lock on the folder and its socket stay, what it had loaded goes.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from contract.programs import environment, python
from potstill.supervisor import STOPS, ChildSpec, Supervisor

READY_WITHIN = 60.0  # seconds after which the start is called slow
_ANSWER_WITHIN = 5.0
_LARGEST_ANSWER = 1 << 20


@dataclass(frozen=True)
class Program:
    """One program to keep running; `probed` if the API is asked whether it is of any use."""

    name: str
    argv: list[str]
    pass_fds: list[int]
    probed: bool = False


@dataclass(frozen=True)
class Plan:
    """What to do.

    Attributes:
        url: where this machine reaches the API.
        url_file: file that goes when the service ends.
        programs: what to run.
        open_browser: show the API's page when it answers.
        encoding: of the terminal.
        log_format: what its own lines look like, and what comes of its programs' lines.
    """

    url: str
    url_file: str
    programs: list[Program]
    open_browser: bool
    encoding: str
    log_format: str = "text"

    def to_json(self) -> bytes:
        """Return it as it is handed on."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_json(cls, text: bytes) -> "Plan":
        """Return what was handed on."""
        told = json.loads(text)
        return cls(**told | {"programs": [Program(**each) for each in told["programs"]]})


def become(plan: Plan, kept: Sequence[int]) -> NoReturn:
    """Replace this program by the small one.

    Args:
        plan: what it does.
        kept: open files that it goes on with.
    """
    reading, writing = os.pipe()  # the command line is for people to read
    with open(writing, "wb") as pipe:
        pipe.write(plan.to_json())
    for handle in (reading, *kept):
        os.set_inheritable(handle, True)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # a Ctrl-C in between waits for whoever stops the children
    sys.stdout.flush()
    command = python("-m", "potstill.standing", "up", plan.url, str(reading))
    os.execve(command[0], command, environment())


def ask(url: str, path: str) -> tuple[int, bytes] | None:
    """Return status and body of a GET to our own API, None where it does not answer.

    By hand, because an HTTP library would be half of this process. The certificate may well be for another name than
    this address; it is our own socket, and nothing is sent.
    """
    place = urlsplit(url)
    request = f"GET {path} HTTP/1.0\r\nHost: {place.netloc}\r\n\r\n"
    try:
        with _connected(place.hostname or "", place.port or 0, place.scheme == "https") as connection:
            connection.sendall(request.encode())
            answer = bytearray()
            while len(answer) < _LARGEST_ANSWER and (piece := connection.recv(1 << 16)):
                answer += piece
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        return int(head.split(None, 2)[1]), body
    except (OSError, ValueError, IndexError):
        return None


def _connected(host: str, port: int, tls: bool) -> socket.socket:
    plain = socket.create_connection((host, port), _ANSWER_WITHIN)
    if not tls:
        return plain
    import ssl

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def useless(url: str, pid: int) -> str | None:
    """Return why the worker of a process id is of no use; None when it is, or when the API does not say."""
    answer = ask(url, f"/readyz?pid={pid}")
    if answer is None:
        return None
    with suppress(ValueError, KeyError, TypeError):
        check: Any = json.loads(answer[1])["checks"]["process"]
        return None if check["ok"] else str(check["detail"])
    return None


def _watch(plan: Plan, supervisor: Supervisor) -> None:
    """Say when the API answers."""
    start = time.monotonic()
    while time.monotonic() - start < READY_WITHIN:
        answer = ask(plan.url, "/healthz")
        if answer is not None and answer[0] == 200:
            supervisor.printer.line("potstill", f"ready after {time.monotonic() - start:.1f} s; Ctrl-C stops")
            if plan.open_browser:
                import webbrowser

                webbrowser.open(f"{plan.url}/docs")
            return
        time.sleep(0.2)
    supervisor.printer.line("potstill", f"the API does not answer after {READY_WITHIN:g} s; its lines above say why")


def stand(plan: Plan) -> int:
    """Keep the programs running until Ctrl-C; return the exit code."""
    specs = [
        ChildSpec(
            each.name,
            each.argv,
            pass_fds=each.pass_fds,
            probe=partial(useless, plan.url) if each.probed else None,
        )
        for each in plan.programs
    ]
    supervisor = Supervisor(specs, objects=plan.log_format == "json")
    watcher = threading.Thread(target=_watch, args=(plan, supervisor), daemon=True)
    try:
        return supervisor.run(started=watcher.start)
    finally:
        Path(plan.url_file).unlink(missing_ok=True)


def main() -> int:
    """Do what the plan says that the command line names the open file of."""
    with open(int(sys.argv[3]), "rb") as pipe:
        plan = Plan.of_json(pipe.read())
    sys.stdout.reconfigure(encoding=plan.encoding, errors="replace")  # type: ignore[union-attr]
    return stand(plan)


if __name__ == "__main__":
    sys.exit(main())
