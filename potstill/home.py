"""The folder that holds everything of an embedded installation, as far as the command line knows it."""

import errno
import os
from pathlib import Path
from typing import IO

from contract.private import private, private_folder
from potstill.console import CliError
from potstill.storage.files import sync

DEFAULT_URL = "http://127.0.0.1:8080"


def default_path() -> Path:
    """Return POTSTILL_HOME, or `.potstill` here."""
    return Path(os.environ.get("POTSTILL_HOME") or ".potstill").absolute()


def _owned(folder: Path) -> str:
    """Return whose folder it is, as a clause of a message, if that can be told."""
    try:
        return f"the folder is {folder.owner()}'s; "
    except (OSError, KeyError, NotImplementedError):
        return ""


class Home:
    """Files in the home folder that a running service leaves for the command line on the same machine."""

    def __init__(self, path: Path | None = None):
        self.path = (path or default_path()).absolute()
        self.url_file = self.path / "url"
        self.token_file = self.path / "operator.token"
        self._lock: IO[str] | None = None

    def make(self) -> None:
        """Create the folder, or close it to others: tokens and models are inside.

        Raises:
            CliError: it cannot be made.
            OpenToOthers: others can write into it.
        """
        try:
            private_folder(self.path)
        except OSError as error:
            raise CliError(f"cannot create {self.path}: {error.strerror}; choose another folder with --home") from error

    def lock(self) -> None:
        """Refuse a second `potstill up` on this folder; the lock ends with the process.

        Raises:
            CliError: another process holds it, or it is another user's, or on a file system without locks.
        """
        import fcntl  # Windows has none; `up` has said so before

        try:
            self._lock = open(  # noqa: SIM115  # open until the process ends
                self.path / "up.lock", "a", encoding="utf-8", opener=private
            )
        except OSError as error:
            raise CliError(
                f"{error.filename}: {error.strerror}; {_owned(self.path)}choose another folder with --home, or give "
                "this one to the user who runs potstill (chown -R)"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.unlock()
            if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                raise CliError(
                    f"a potstill is already running on {self.path}; stop it first or choose another folder with --home"
                ) from error
            raise CliError(
                f"{self.path} is on a file system without locks ({error.strerror}), on which a database does not hold; "
                "choose a folder on a local disk with --home"
            ) from error

    @property
    def lock_handle(self) -> int:
        """The open file that holds the lock, for a program that goes on with it."""
        assert self._lock is not None
        return self._lock.fileno()

    def unlock(self) -> None:
        """Give the folder back."""
        if self._lock:
            self._lock.close()
            self._lock = None

    def write(self, file: Path, text: str) -> None:
        """Write a small file whole or not at all, for its owner only."""
        fresh = file.with_name(f"{file.name}.{os.getpid()}.tmp")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            out.write(text + "\n")
            out.flush()
            os.fsync(out.fileno())
        os.replace(fresh, file)
        sync(file.parent)

    def read(self, file: Path) -> str | None:
        """Return the file's text, or None when it is not there."""
        try:
            return file.read_text(encoding="utf-8").strip() or None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise CliError(
                f"{file} cannot be read by this user ({getattr(error, 'strerror', None) or 'it is no text'}): run the "
                "command as its owner, or set POTSTILL_URL and POTSTILL_TOKEN"
            ) from error
