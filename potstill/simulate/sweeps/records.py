"""What is kept of a cell: one file, whole or not at all, by which it is not run again."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from contract.tasks import Metric
from contract.wire.report import Bytes
from potstill.simulate import report
from potstill.simulate.config import SimulationError
from potstill.simulate.experiment import Run
from potstill.simulate.history import digest_of
from potstill.simulate.loaded import Loaded
from potstill.simulate.settings import Experiment, RecipeEntry, common_head
from potstill.simulate.sweeps.grid import Cell

CELLS = "cells"
_ELSEWHERE = {"recipes", "seeds", "first_seed", "seed_list", "device", "data_dir"}
"""What of an experiment is no setting of a cell: who else is compared, and where it is computed."""


class Record(BaseModel):
    """A cell that is done.

    Attributes:
        varied: what varies -> its value, recipe and seed last.
        settings: what it was made with; empty where nobody goes by it.
        data: digest of the data set, likewise.
        metric: what the task is measured by: name, whether higher is better, whether it is a share.
        rounds: figures by round, the first models as round 0, as `metrics.csv` has them.
        models: digests of the last global models, by prototype.
        files: bytes of the devices' files.
        notes: what a service's creation would note.
        ending: how it ended, where it was not by its last round.
    """

    varied: dict[str, Any]
    settings: dict[str, Any] = {}
    data: str = ""
    metric: tuple[str, bool, bool]
    rounds: list[dict[str, float | int | None]]
    models: dict[str, str]
    files: Bytes | None = None
    notes: list[str] = []
    ending: str | None = None

    @property
    def measured(self) -> Metric:
        """What the task is measured by."""
        name, higher, share = self.metric
        return Metric(name, name, higher, share)

    @property
    def curve(self) -> list[float]:
        """The task's main figure after each round; rounds without one are left out."""
        return self.column(self.metric[0])

    def column(self, name: str) -> list[float]:
        """Return a figure after each round; rounds without it are left out."""
        return [value for each in self.rounds[1:] if (value := each.get(name)) is not None]

    def last(self, name: str) -> float | None:
        """Return a figure of the last round; None where it has none."""
        return self.rounds[-1].get(name)


def digest_of_data(loaded: Loaded) -> str:
    """Return the digest of a data set's arrays."""
    digest = hashlib.sha256()
    parts = [each for each in (loaded.train, loaded.test, loaded.server) if each is not None]
    arrays = [array for each in parts for array in (each.inputs, each.labels, each.strata)]
    for array in (*arrays, *(each.users for each in parts), loaded.other):
        if array is not None:
            digest.update(f"{array.dtype} {array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return f"sha256-{digest.hexdigest()}"


def settings_of(experiment: Experiment, entry: RecipeEntry) -> dict[str, Any]:
    """Return all that a cell's bytes depend on beside its seed, its data and the code."""
    told = experiment.model_dump(mode="json", exclude=_ELSEWHERE)
    head = common_head(experiment)
    return {**told, "recipe": entry.model_dump(mode="json"), "common_head": head}


def record_of(cell: Cell, run: Run, data: str) -> Record:
    """Return what is kept of a run."""
    return told_of(run, cell.varied).model_copy(
        update={"settings": settings_of(cell.point.experiment, cell.entry), "data": data}
    )


def told_of(run: Run, varied: dict[str, Any]) -> Record:
    """Return what tables tell of a run."""
    metric, history, costs = run.metric, run.history, run.costs(())
    ending = history.ending
    return Record(
        varied=varied,
        metric=(metric.name, metric.higher_is_better, metric.is_share),
        rounds=[report.figures(run, record) for record in (history.initial, *history.rounds)],
        models={name: digest_of(path) for name, path in history.models.items()},
        files=None if costs is None else costs.total.files,
        notes=[str(note) for note in history.notes],
        ending=None if ending is None or ending.detail is None else f"{ending.state}: {ending.detail}",
    )


def path_of(cell: Cell, out: Path) -> Path:
    """Return where a cell's record is."""
    return out / CELLS / f"{cell.name}.json"


def write(record: Record, path: Path) -> None:
    """Write a record; a kill leaves the file whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    with partial.open("w", encoding="utf-8") as file:
        file.write(record.model_dump_json(indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def read(cells: Sequence[Cell], data: Sequence[str], out: Path) -> dict[str, Record]:
    """Return the records that are there, by the cells' names.

    Args:
        cells: of the sweep.
        data: the digest of each one's data set.
        out: the sweep's folder.

    Raises:
        SimulationError: one was made with other settings or data, or is no record; the message names what differs.
    """
    found: dict[str, Record] = {}
    for cell, digest in zip(cells, data, strict=True):
        path = path_of(cell, out)
        if not path.exists():
            continue
        try:
            record = Record.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise SimulationError(f"{path}: is no record of a cell; remove it, and it is made anew") from error
        _check(record, cell, digest, path)
        found[cell.name] = record
    return found


def _check(record: Record, cell: Cell, data: str, path: Path) -> None:
    remedy = "choose another folder with --out, or take back what was changed"
    asked = json.loads(json.dumps(settings_of(cell.point.experiment, cell.entry)))
    for name in sorted(asked.keys() | record.settings.keys()):
        if record.settings.get(name) != asked.get(name):
            was, now = (json.dumps(each.get(name)) for each in (record.settings, asked))
            raise SimulationError(f"{path}: was made with {name} {was}, and {now} is asked for; {remedy}")
    if record.data != data:
        raise SimulationError(f"{path}: was made of other data; {remedy}")
