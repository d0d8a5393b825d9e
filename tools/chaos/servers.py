"""A PostgreSQL cluster and a Redis of one's own, to be killed: on free ports, in folders that go with them."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tools.deployment import wait_for


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def program(name: str) -> Path | None:
    """Return a program of PostgreSQL: Debian keeps them off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = found[-1] if found else shutil.which(name)
    return None if path is None else Path(path)


class Server(ABC):
    """A process that can be killed, suspended and started again."""

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="potstill-chaos-"))
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return what starts it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it serves."""

    def start(self, **options: Any) -> None:
        """Start it and wait until it answers; what the killed one left may have to go first."""
        end = time.monotonic() + 60
        while not self._try_to_start(options):
            assert time.monotonic() < end, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.2)

    def _try_to_start(self, options: dict[str, Any]) -> bool:
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, start_new_session=True, cwd=self.folder, **options
            )
        self.process = process
        wait_for(lambda: self.answers() or process.poll() is not None, why=f"{self.command()[0]} does not start")
        return process.poll() is None

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it at once."""
        self.send(number)
        assert self.process is not None
        self.process.wait()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis(Server):
    """A Redis that keeps nothing: it only wakes workers."""

    @staticmethod
    def there() -> bool:
        return shutil.which("redis-server") is not None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                link.sendall(b"PING\r\n")
                return link.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


class Postgres(Server):
    """A cluster of its own; as root it runs as the user `postgres`, which is all that PostgreSQL takes."""

    @staticmethod
    def there() -> bool:
        return program("initdb") is not None and (os.getuid() != 0 or _has_user())

    def __init__(self) -> None:
        super().__init__()
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = {"user": "postgres", "group": user.pw_gid, "extra_groups": []}
        initdb = [str(program("initdb")), "-D", str(self.folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, cwd=self.folder, **self._as)

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    def command(self) -> list[str]:
        options = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200"]
        return [str(program("postgres")), "-D", str(self.folder / "data"), "-p", str(self.port), *options]

    def start(self, **options: Any) -> None:
        super().start(**self._as)

    def answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres", connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False


def _has_user() -> bool:
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        return False
    return True
