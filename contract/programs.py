"""How a program of ours starts another: whatever lies in the current folder, or on PYTHONPATH, is not taken for ours.

The names of our packages are plain words. A user's folder may well hold a `service.py` or a `contract.py`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGES = ("contract", "client_sdk", "service", "worker", "potstill", "migrations")
ROOT = Path(__file__).resolve().parents[1]
"""The folder of our packages."""
LEAN = {"MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "524288"}
"""What has glibc give memory back that a service no longer needs: it would keep some for every thread, and for blocks
as large as the largest that was ever freed. What is read of a socket, 250 KB at most, is not mapped anew each time. A
process with torch goes without: every tensor would be."""
_SITE = ("site-packages", "dist-packages")


def python(*arguments: str) -> list[str]:
    """Return the command line of a Python program that does not look into the current folder for modules."""
    return [sys.executable, "-P", *arguments]


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment for `python`, by default this process's, in which our packages are found, and first.

    What such a program says and writes is UTF-8, whatever the terminal is.

    A folder that is on every path anyway goes first only where something would shadow it: it holds more than ours.
    """
    given = dict(os.environ if base is None else base)
    path = [folder for folder in given.get("PYTHONPATH", "").split(os.pathsep) if folder]
    if ROOT.name not in _SITE or any(shadowed(Path(folder)) for folder in path):
        path.insert(0, str(ROOT))
    if path:
        given["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path))
    else:
        given.pop("PYTHONPATH", None)
    return given | {"PYTHONSAFEPATH": "1", "PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}


def shadowed(folder: Path) -> bool:
    """Whether a folder on the path holds a module with the name of a package of ours."""
    if folder.resolve() == ROOT:
        return False
    return any((folder / f"{name}.py").exists() or (folder / name).is_dir() for name in PACKAGES)
