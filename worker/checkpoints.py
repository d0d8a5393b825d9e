"""Checkpoints: what a long job has so far, in a folder that outlives its worker. safetensors and JSON, no pickle.

One file holds one state of one phase. Its name says whose it is (the fencing token), how far it goes, and its digest:
a file that was cut or changed is recognised without opening it. Inside, the header's metadata names the job's key, a
digest of everything that the result depends on; a state of other inputs is never taken up. A worker that lost its
lease writes under its own, older token and removes nothing newer, so it cannot disturb the one that came after it.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from contract.tensors import Array, TensorError, TensorFile, write_file
from worker.specs import JobSpec, Resumed

log = logging.getLogger("worker.checkpoints")
FORMAT = 1
EVERY_SECONDS = 20.0
"""How often a long job puts its state on the disk."""
MAX_BYTES = 2**31
"""A larger state is not kept."""
_NOTE = "potstill.checkpoint"
_NAME = re.compile(r"(?P<phase>[0-9a-f]{16})-(?P<fence>\d{10})-(?P<step>\d{12})-(?P<sha>[0-9a-f]{64})\.safetensors")
_BLOB = re.compile(r"[0-9a-f]{64}")
_COST = 10.0  # writing takes at most about a tenth of the time
Contents = tuple[Mapping[str, Array], dict[str, Any]]


class Stopped(Exception):
    """The job was asked to end; its state is on the disk."""


@dataclass(frozen=True)
class Saved:
    """One state: arrays by name, and notes (plain JSON values)."""

    phase: str
    step: int
    arrays: dict[str, Array]
    notes: dict[str, Any]

    def under(self, prefix: str) -> dict[str, Array]:
        """Return the arrays whose names begin with `prefix`, without it."""
        return {name[len(prefix) :]: array for name, array in self.arrays.items() if name.startswith(prefix)}


class Checkpoints:
    """The states of one job, as one attempt sees and writes them. What goes wrong here costs time, never the job.

    Args:
        folder: of this job, whatever the attempt; made when it is first written to. None: nothing is kept.
        key: digest of everything that the result depends on (`key_of`).
        fence: the attempt's fencing token.
        every_seconds: between two writes, at least; a write that takes long is followed by a longer pause.
        max_bytes: a larger state is not written.
        clock: seconds.

    Attributes:
        resumed: the furthest state that was taken up.
        asked: somebody wants the job to end: the next state is written at once, and `Stopped` is raised.
    """

    def __init__(
        self,
        folder: Path | None,
        key: str = "",
        fence: int = 0,
        every_seconds: float = EVERY_SECONDS,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.folder, self.key, self.fence = folder, key, fence
        self._every, self._max_bytes, self._clock = every_seconds, max_bytes, clock
        self._pause = every_seconds
        self._at = clock()
        self._waiting: dict[str, tuple[int, Callable[[], Contents]]] = {}
        self.resumed: Resumed | None = None
        self.asked = False
        if folder is not None:
            self._forget_unfinished()

    # ------------------------------------------------------------------------------------------------------- reading
    def load(self, phase: str) -> Saved | None:
        """Return the newest sound state of a phase: of the newest token, then the furthest. None when there is none."""
        for path, found in self._files(phase):
            saved = self._read(path, phase, found["sha"])
            if saved is not None:
                log.info("going on from %s, step %d", phase, saved.step)
                self.resumed = Resumed(phase=phase, step=saved.step)
                return saved
        return None

    def _files(self, phase: str) -> list[tuple[Path, dict[str, str]]]:
        if self.folder is None or not self.folder.is_dir():
            return []
        found = []
        for path in self.folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match and match["phase"] == _short(phase):
                found.append((path, match.groupdict()))
        return sorted(found, key=lambda each: (each[1]["fence"], each[1]["step"]), reverse=True)

    def _read(self, path: Path, phase: str, sha: str) -> Saved | None:
        try:
            if _sha256(path) != sha:
                log.warning("checkpoint %s is damaged; it is not used", path.name)
                return None
            with TensorFile(path) as file:
                notes = json.loads(file.header.metadata[_NOTE])
                if (notes["format"], notes["key"], notes["phase"]) != (FORMAT, self.key, phase):
                    log.info("checkpoint %s is of other inputs or another program; it is not used", path.name)
                    return None
                arrays = {name: file.read(name) for name in file.names}
            return Saved(phase, notes["step"], arrays, notes["notes"])
        except (OSError, TensorError, KeyError, ValueError, TypeError) as error:
            log.warning("checkpoint %s cannot be read; it is not used: %s", path.name, error)
            return None

    # ------------------------------------------------------------------------------------------------------- writing
    def due(self) -> bool:
        """Whether it is time to write."""
        return self.asked or (self.folder is not None and self._clock() - self._at >= self._pause)

    def complete(self, phase: str, step: int, make: Callable[[], Contents]) -> None:
        """Note that a phase is complete; its state is written now if that is due, else with the next one that is."""
        if self.folder is not None:
            self._waiting[phase] = (step, make)
        if self.due():
            self.flush()

    def save(self, phase: str, step: int, arrays: Mapping[str, Array], notes: dict[str, Any]) -> None:
        """Write a state, and before it those of complete phases that wait.

        Raises:
            Stopped: after the writing, if that was asked for.
        """
        self._waiting[phase] = (step, lambda: (arrays, notes))
        self.flush()

    def flush(self) -> None:
        """Write what waits.

        Raises:
            Stopped: after the writing, if that was asked for.
        """
        begun = self._clock()
        waiting, self._waiting = self._waiting, {}
        for phase, (step, make) in waiting.items():
            try:
                self._write(phase, step, *make())
            except (OSError, TensorError, ValueError) as error:
                log.warning("no checkpoint of %s at step %d: %s", phase, step, error)
        self._at = self._clock()
        self._pause = max(self._every, _COST * (self._at - begun))
        if self.asked:
            raise Stopped

    def _write(self, phase: str, step: int, arrays: Mapping[str, Array], notes: dict[str, Any]) -> None:
        if self.folder is None:
            return
        size = sum(array.nbytes for array in arrays.values())
        if size > self._max_bytes:
            log.warning("no checkpoint of %s: %d bytes; at most %d are kept", phase, size, self._max_bytes)
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        said = {"format": FORMAT, "key": self.key, "phase": phase, "step": step, "notes": notes}
        partial = self.folder / f".part-{self.fence:010d}-{uuid.uuid4().hex}"
        try:
            write_file(partial, arrays, {_NOTE: json.dumps(said, allow_nan=False)})
            name = f"{_short(phase)}-{self.fence:010d}-{step:012d}-{_sha256(partial)}.safetensors"
            os.replace(partial, self.folder / name)
        finally:
            partial.unlink(missing_ok=True)
        _to_disk(self.folder)
        self._forget_older(phase, name)

    def _forget_older(self, phase: str, newest: str) -> None:
        """Remove the states that this one replaces; those of newer tokens are not ours to touch."""
        for path, found in self._files(phase):
            if path.name != newest and int(found["fence"]) <= self.fence:
                path.unlink(missing_ok=True)

    def _forget_unfinished(self) -> None:
        """Remove what killed attempts left unfinished."""
        assert self.folder is not None
        if self.folder.is_dir():
            for path in self.folder.glob(".part-*"):
                with contextlib.suppress(ValueError, IndexError):
                    if int(path.name.split("-")[1]) <= self.fence:
                        path.unlink(missing_ok=True)


@dataclass
class Checkpoint:
    """One phase's view of the checkpoints; without any, nothing is saved and nothing found.

    Attributes:
        saved: the state to go on from.
    """

    phase: str = ""
    checkpoints: Checkpoints = field(default_factory=lambda: Checkpoints(None))
    saved: Saved | None = None

    @classmethod
    def of(cls, checkpoints: Checkpoints, phase: str) -> "Checkpoint":
        """Open the phase's newest state."""
        return cls(phase, checkpoints, checkpoints.load(phase))

    def due(self) -> bool:
        """Whether it is time to write."""
        return self.checkpoints.due()

    def save(self, step: int, arrays: Mapping[str, Array], notes: dict[str, Any]) -> None:
        """Write the phase's state; see `Checkpoints.save`."""
        self.checkpoints.save(self.phase, step, arrays, notes)

    def complete(self, step: int, make: Callable[[], Contents]) -> None:
        """Say that the phase is complete; see `Checkpoints.complete`."""
        self.checkpoints.complete(self.phase, step, make)


# ----------------------------------------------------------------------------------------------------------------- key
def key_of(spec: JobSpec, device: str, threads: int) -> str:
    """Return the digest of what a job's bytes depend on: inputs by their contents, recipe, seed, programs, device.

    Blobs are named by their digest, so their names are enough; any other file is read.
    """
    tree = spec.model_dump(mode="python", exclude={"output_dir": True, "shards": True, "round": {"output_dir"}})
    said = {"spec": plain(tree), "code": code_version(), "device": device, "threads": threads}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def plain(value: Any) -> Any:
    """Return a description as JSON holds it, a file's digest in place of its path."""
    if isinstance(value, Path):
        return value.name if _BLOB.fullmatch(value.name) else _sha256(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


@cache
def code_version() -> str:
    """Return a digest of the programs that decide a result: our sources, numpy and torch."""
    found = hashlib.sha256()
    root = Path(__file__).parents[1]
    for package in ("contract", "worker"):
        for path in sorted((root / package).rglob("*.py")):
            found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    for name in ("numpy", "torch"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.update(f"{name}={metadata.version(name)}\0".encode())
    return found.hexdigest()


def _short(phase: str) -> str:
    return hashlib.sha256(phase.encode()).hexdigest()[:16]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _to_disk(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
