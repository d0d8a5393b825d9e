"""Runs as TensorBoard's event files: a folder a run, a scalar a figure, the parameters for its tab HParams."""

import json
import re
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.summary import hparams

from potstill.console import CliError
from potstill.tracking.runs import Point, TrackedRun

_NOTE, _FILES = "potstill.json", "events.out.tfevents.*"


@dataclass
class _Open:
    folder: Path
    written: set[tuple[str, int]]

    @cached_property
    def writer(self) -> EventsWriter:
        """A file of its own, made when there is something to write; numbered, for names go by the second.

        Written at once: `FileWriter` writes in a thread of its own, for which its `flush` does not wait.
        """
        number = len(list(self.folder.glob(_FILES)))
        return EventsWriter(str(self.folder / "events"), f".{number}")

    def add(self, summary: Summary, point: Point, step: int) -> None:
        """Write a summary."""
        moment = time.time() if point.seconds is None else point.seconds
        self.writer.write_event(Event(wall_time=moment, step=step, summary=summary))

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
                    opened.add(summary, point, 0)
            for name, value in fresh.items():
                opened.add(Summary(value=[Summary.Value(tag=name, simple_value=value)]), point, point.round)
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
