"""Folders and files that their owner alone can read: whatever was there before, and whatever the umask is."""

import contextlib
import os
import shlex
import stat
from pathlib import Path

FOLDER, FILE, UMASK = 0o700, 0o600, 0o077
_OTHERS_READ, _OTHERS_WRITE = 0o077, 0o022
_ROOT = 0


class OpenToOthers(Exception):
    """A folder into which others can write, so that what lies in it may be theirs; the message says what to do."""


def private_folder(path: Path) -> Path:
    """Make a folder for its owner alone, or close one that is there to others; return it.

    A folder of another user is as that one wants it: an orchestrator mounts folders that are root's. One whose parent
    nobody else can enter is closed without a question.

    Raises:
        OpenToOthers: others can write into it.
        OSError: it cannot be made.
    """
    try:
        path.mkdir(mode=FOLDER, exist_ok=True)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.mkdir(mode=FOLDER, exist_ok=True)
    if not hasattr(os, "geteuid"):  # Windows: its rights are others
        return path
    found = path.stat()
    mode, me = stat.S_IMODE(found.st_mode), os.geteuid()
    if found.st_uid != me:
        if mode & stat.S_IWOTH and (found.st_uid != _ROOT or mode & stat.S_ISVTX):
            raise _open(path)
        return path
    if mode & _OTHERS_WRITE and not _is_closed(path.resolve().parent, me):
        raise _open(path)
    if mode & _OTHERS_READ:
        os.chmod(path, mode & ~_OTHERS_READ)
    return path


def _is_closed(path: Path, me: int) -> bool:
    found = path.stat()
    return found.st_uid == me and not stat.S_IMODE(found.st_mode) & _OTHERS_READ


def _open(path: Path) -> OpenToOthers:
    return OpenToOthers(
        f"other users can write into {path}, so what is in it may be theirs; look at it, then close it: "
        f"chmod 700 {shlex.quote(str(path))} (or choose another folder)"
    )


def close_file(path: Path) -> None:
    """Close a file, or a folder, to others, if it is there and ours."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OTHERS_READ:
            os.chmod(path, mode & ~_OTHERS_READ)


def private(path: str, flags: int) -> int:
    """Open a file so that, if it is made, nobody else can read it: an `opener` for `open`."""
    return os.open(path, flags, FILE)
