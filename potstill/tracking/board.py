"""Runs as TensorBoard's event files: a folder a run, a scalar a figure, the parameters for its tab HParams."""

import json
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.summary import hparams
from tensorboardX.writer import FileWriter

from potstill.console import CliError
from potstill.tracking.runs import Point, TrackedRun

_NOTE, _FILES = "potstill.json", "events.out.tfevents.*"


@dataclass
class _Open:
    folder: Path
    written: set[tuple[str, int]]

    @cached_property
    def writer(self) -> FileWriter:
        """A file of its own, made when there is something to write; numbered, for names go by the second."""
        number = len(list(self.folder.glob(_FILES)))
        return FileWriter(str(self.folder), filename_suffix=f".{number}")

    def flush(self) -> None:
        """See that what was written is on the disk."""
        if "writer" in self.__dict__:
            self.writer.flush()

    def close(self) -> None:
        """Close the file."""
        if "writer" in self.__dict__:
            self.writer.close()


class Board:
    """A folder for `tensorboard --logdir`. What a run's event files hold by tag and step is not written again."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._runs: dict[str, _Open] = {}

    def write(self, run: TrackedRun, points: Iterable[Point]) -> int:
        """Write what is not there; return how many rounds had something new.

        Raises:
            CliError: the run's folder holds another run.
        """
        opened = self._opened(run)
        count = 0
        for point in points:
            told = {re.sub(r"[^\w/.-]", "_", name): value for name, value in point.figures.items()}
            fresh = {name: value for name, value in told.items() if (name, point.round) not in opened.written}
            if fresh and not opened.written:
                for summary in hparams(dict(run.parameters), dict.fromkeys(told)):
                    opened.writer.add_summary(summary, 0, point.seconds)
            for name, value in fresh.items():
                scalar = Summary(value=[Summary.Value(tag=name, simple_value=value)])
                opened.writer.add_summary(scalar, point.round, point.seconds)
            opened.written |= {(name, point.round) for name in fresh}
            count += bool(fresh)
        opened.flush()
        return count

    def end(self, run: TrackedRun, *, failed: bool = False) -> None:
        """Close the run's file."""
        opened = self._runs.pop(run.key, None)
        if opened is not None:
            opened.close()

    def _opened(self, run: TrackedRun) -> _Open:
        if run.key not in self._runs:
            folder = self._folder / (re.sub(r"[^\w.,=+-]", "_", run.name).lstrip(".") or "_")
            note = folder / _NOTE
            if note.exists() and json.loads(note.read_text(encoding="utf-8"))["run"] != run.key:
                raise CliError(f"{folder} holds another run; choose another folder for TensorBoard")
            folder.mkdir(parents=True, exist_ok=True)
            note.write_text(json.dumps({"run": run.key}) + "\n", encoding="utf-8")
            self._runs[run.key] = _Open(folder, set(scalars(folder)))
        return self._runs[run.key]


def scalars(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield tag and step of all scalars in a folder's event files.

    A record is its size (8 bytes, little-endian), a checksum of that (4), the event, and a checksum of it (4); one that
    a kill has cut off ends its file, for TensorBoard too.
    """
    for file in sorted(folder.glob(_FILES)):
        data, at = file.read_bytes(), 0
        while at + 12 <= len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            if at + 16 + size > len(data):
                break
            event = Event.FromString(data[at + 12 : at + 12 + size])
            yield from ((each.tag, event.step) for each in event.summary.value if each.HasField("simple_value"))
            at += 16 + size
