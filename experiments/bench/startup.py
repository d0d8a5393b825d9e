"""How long it takes until something begins: imports, the command line, a service."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from experiments.bench.measuring import Bench, Figure, Side, Taken, timed
from experiments.bench.reference import Reference
from potstill.demo.service import LocalService


def _compiled(folder: Path) -> dict[str, str]:
    """Return what lets programs keep compiled modules, as an installation has them, whatever this process is told."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def _python(folder: Path, *arguments: str) -> Side:
    """Return a program that runs to its end; once before, for it may have to be compiled."""
    command, env = [sys.executable, *arguments], os.environ | _compiled(folder)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)

    def side() -> Taken:
        before = _of_children()
        taken = timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env))()
        return Taken(taken.value, _of_children() - before)

    return side


def _of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _until_healthy(folder: Path) -> Taken:
    home = Path(tempfile.mkdtemp(dir=folder))
    service = LocalService(home / "home", home / "log", env=_compiled(folder))
    try:
        return Taken(timed(service.__enter__)().value)
    finally:
        service.stop()


def _until_bare(folder: Path) -> Taken:
    service = Reference(Path(tempfile.mkdtemp(dir=folder)))
    try:
        return Taken(timed(service.__enter__)().value)
    finally:
        service.stop()


def measure(bench: Bench) -> Iterator[Figure]:
    """Each against the least that it could be: what it is built on."""
    times = bench.pick(9, 3)
    torch = "import torch, httpx, pydantic"
    cases = (
        ("import client_sdk", ("-c", "import client_sdk"), "importing httpx, pydantic", "import httpx, pydantic"),
        ("import client_sdk, torch", ("-c", "import client_sdk.training"), "importing those and torch", torch),
        ("potstill --help", ("-m", "potstill", "--help"), "importing typer, rich.table", "import typer, rich.table"),
    )
    for what, ours, against, other in cases:
        pairs = bench.turns(what, _python(bench.folder, *ours), _python(bench.folder, "-c", other), times)
        yield Figure(what, "s", against, pairs)
    what = "potstill up, a new folder, until healthy"
    _until_healthy(bench.folder)  # it is compiled now
    pairs = bench.turns(what, lambda: _until_healthy(bench.folder), lambda: _until_bare(bench.folder), bench.pick(5, 2))
    yield Figure(what, "s", "the bare reference service", pairs)
