"""The folder that holds everything of an embedded installation, as far as the command line knows it."""

import fcntl
import os
from pathlib import Path
from typing import IO

from potstill.console import CliError
from potstill.storage.files import sync

DEFAULT_URL = "http://127.0.0.1:8080"


def default_path() -> Path:
    """Return POTSTILL_HOME, or `.potstill` here."""
    return Path(os.environ.get("POTSTILL_HOME") or ".potstill").absolute()


class Home:
    """Files in the home folder that a running service leaves for the command line on the same machine."""

    def __init__(self, path: Path | None = None):
        self.path = (path or default_path()).absolute()
        self.url_file = self.path / "url"
        self.token_file = self.path / "operator.token"
        self._lock: IO[str] | None = None

    def make(self) -> None:
        """Create the folder, readable by its owner only: tokens and models are inside."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CliError(f"cannot create {self.path}: {error.strerror}; choose another folder with --home") from error

    def lock(self) -> None:
        """Refuse a second `potstill up` on this folder; the lock ends with the process.

        Raises:
            CliError: another process holds it.
        """
        self._lock = open(self.path / "up.lock", "a")  # noqa: SIM115  # held open until the process ends
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.unlock()
            raise CliError(
                f"a potstill is already running on {self.path}; stop it first or choose another folder with --home"
            ) from error

    def unlock(self) -> None:
        """Give the folder back."""
        if self._lock:
            self._lock.close()
            self._lock = None

    def write(self, file: Path, text: str) -> None:
        """Write a small file whole or not at all, for its owner only."""
        fresh = file.with_name(f"{file.name}.{os.getpid()}.tmp")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(text + "\n")
            out.flush()
            os.fsync(out.fileno())
        os.replace(fresh, file)
        sync(file.parent)

    def read(self, file: Path) -> str | None:
        """Return the file's text, or None when it is not there."""
        try:
            return file.read_text().strip() or None
        except (FileNotFoundError, NotADirectoryError):
            return None
