"""What a sweep's cells come to: one table with a column for everything that varies, as text, CSV and JSON."""

import csv
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from contract.tasks import Metric
from potstill import drawing
from potstill.console import size
from potstill.simulate import report
from potstill.simulate.bands import half_width
from potstill.simulate.sweeps.grid import SEED, shown_of
from potstill.simulate.sweeps.records import Record


@dataclass(frozen=True)
class Row:
    """All seeds of one combination.

    Attributes:
        varied: what varies -> its value; without what the recipe does not have.
        records: seed by seed.
    """

    varied: Mapping[str, Any]
    records: Sequence[Record]

    @property
    def metric(self) -> Metric:
        """What is measured."""
        return self.records[0].measured

    def values(self, what: str) -> list[float]:
        """Return one of `FIGURES`, or the last round's figure of a name, seed by seed; without those that lack it."""
        of = FIGURES.get(what) or (lambda record: record.last(what.removesuffix(_LAST)))
        return [value for record in self.records if (value := of(record)) is not None]

    @property
    def curves(self) -> list[list[float]]:
        """The main figure by round, seed by seed, as far as all go."""
        found = [record.curve for record in self.records]
        length = min(map(len, found))
        return [curve[:length] for curve in found]


_LAST = ", last"
_ENSEMBLE = "ensemble, last"
_SECONDS, _FILES, _CLOCK = "s/round", "files", "clock, s"


def _best(record: Record) -> float | None:
    curve = record.curve
    return None if not curve else max(curve) if record.measured.higher_is_better else min(curve)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


FIGURES: dict[str, Callable[[Record], float | None]] = {
    "mean of rounds": lambda record: _mean(record.curve),
    "last 3": lambda record: _mean(record.curve[-3:]),
    "last": lambda record: record.curve[-1] if record.curve else None,
    "best": _best,
    _ENSEMBLE: lambda record: record.last(f"ensemble_{record.metric[0]}"),
    _SECONDS: lambda record: _mean(record.column("seconds")),
    _FILES: lambda record: None if record.files is None else record.files.down + record.files.up,
    _CLOCK: lambda record: record.last("clock"),
}
"""What is told of each cell."""
_MAIN = ("mean of rounds", "last 3", "last", "best", _ENSEMBLE)
"""Those that are of the task's main figure."""


def rows_of(records: Iterable[Record]) -> list[Row]:
    """Return the cells, all seeds of a combination in one row, in the order of their first."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(_key(record), []).append(record)
    return [Row({k: v for k, v in group[0].varied.items() if k != SEED}, group) for group in found.values()]


def _key(record: Record) -> str:
    return json.dumps([[name, value] for name, value in record.varied.items() if name != SEED])


def axes_of(rows: Sequence[Row]) -> list[str]:
    """Return what varies, the recipe last."""
    found = dict.fromkeys(name for row in rows for name in row.varied)
    return [*(name for name in found if name != "recipe"), "recipe"]


def _told(rows: Sequence[Row]) -> list[str]:
    """Return what is told of these rows: of `FIGURES` and further figures of the last round what any of them has."""
    main = {row.metric.name for row in rows}
    others = dict.fromkeys(
        name for row in rows for name in row.records[0].rounds[-1]
        if name not in main | {"round", "loss", "participants", "seconds", "clock"}
        and not name.startswith(("average_", "ensemble_"))
    )  # fmt: skip
    plain = all(row.metric.name == "accuracy" for row in rows)
    told = [*_MAIN, *([] if plain else [f"{name}{_LAST}" for name in others]), _FILES, _CLOCK, _SECONDS]
    return [what for what in told if any(row.values(what) for row in rows)]


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows as people see them: mean ± standard deviation over the seeds, shares in percent.

    What is measured is a column of its own where it is not the same everywhere.
    """
    axes, told = axes_of(rows), _told(rows)
    mixed = len({row.metric.name for row in rows}) > 1
    heading = [*axes, *(["of"] if mixed else []), "seeds", *told]
    found = []
    for row in rows:
        names = [shown_of(row.varied[axis]) if axis in row.varied else "–" for axis in axes]
        of = [drawing.unit(row.metric)] if mixed else []
        found.append([*names, *of, str(len(row.records)), *(_cell(row, what) for what in told)])
    return heading, found


def _cell(row: Row, what: str) -> str:
    values = row.values(what)
    if not values:
        return "–"
    if what in _MAIN:
        return report.spread(values, row.metric)
    if what == _FILES:
        return size(round(fmean(values)))
    if what in (_SECONDS, _CLOCK):
        return f"{fmean(values):.3g}" if what == _SECONDS else f"{fmean(values):.0f}"
    return report.spread(values, Metric(what, what, is_share=False))


def data(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the table for programs: what varies, seeds, each figure's mean, deviation and confidence interval, curves.

    Shares are in [0, 1], files in bytes; `std` and the bounds are null of one seed.
    """
    told = _told(rows)
    return [
        {
            "varied": dict(row.varied),
            "metric": row.metric.name,
            "seeds": [record.varied[SEED] for record in row.records],
            "figures": {what: _summary(row.values(what)) for what in told if row.values(what)},
            "rounds": [
                {"round": index, **_summary(values)}
                for index, values in enumerate(zip(*row.curves, strict=True), start=1)
            ],
        }
        for row in rows
    ]


def _summary(values: Sequence[float]) -> dict[str, float | None]:
    mean = fmean(values)
    if len(values) < 2:
        return {"mean": mean, "std": None, "low": None, "high": None}
    half = float(half_width(values))
    return {"mean": mean, "std": stdev(values), "low": mean - half, "high": mean + half}


def write(records: Sequence[Record], out: Path, title: str) -> None:
    """Write table.md, table.csv, table.json and metrics.csv, each whole or not at all."""
    rows = rows_of(records)
    write_data(records, out)
    unit = ", ".join(dict.fromkeys(f"test {drawing.unit(row.metric)}" for row in rows))
    text = drawing.as_markdown(*table(rows), texts=len(axes_of(rows)))
    _put(
        out / "table.md", f"# {title}\n\n{unit[:1].upper()}{unit[1:]}; mean ± standard deviation over seeds.\n\n{text}"
    )
    _put(out / "metrics.csv", _rounds(records, axes_of(rows)))


def write_data(records: Sequence[Record], out: Path) -> None:
    """Write table.csv and table.json, each whole or not at all."""
    rows = rows_of(records)
    _put(out / "table.json", json.dumps(data(rows), indent=2) + "\n")
    _put(out / "table.csv", _csv(rows))


def _csv(rows: Sequence[Row]) -> str:
    """Return a line a row: what varies, then mean, deviation and confidence interval of every figure."""
    axes, told = axes_of(rows), _told(rows)
    parts = ("mean", "std", "low", "high")
    lines: list[list[Any]] = [
        [*axes, "metric", "seeds", *(f"{what.replace(',', '')} {part}" for what in told for part in parts)]
    ]
    for row, whole in zip(rows, data(rows), strict=True):
        values = [whole["figures"].get(what, {}).get(part) for what in told for part in parts]
        names = [shown_of(row.varied[axis]) if axis in row.varied else "" for axis in axes]
        lines.append(
            [*names, row.metric.name, len(row.records), *("" if each is None else f"{each:.6g}" for each in values)]
        )
    return _text(lines)


def _rounds(records: Sequence[Record], axes: Sequence[str]) -> str:
    """Return a line a round of every cell, the first models as round 0."""
    names = list(dict.fromkeys(name for record in records for name in record.rounds[0]))
    lines: list[list[Any]] = [[*axes, SEED, *names]]
    for record in records:
        varied = [shown_of(record.varied[axis]) if axis in record.varied else "" for axis in (*axes, SEED)]
        lines += [[*varied, *(report.shown(name, each.get(name)) for name in names)] for each in record.rounds]
    return _text(lines)


def _text(lines: Iterable[Sequence[Any]]) -> str:
    out = StringIO()
    csv.writer(out).writerows(lines)
    return out.getvalue()


def _put(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(text, encoding="utf-8", newline="")
    os.replace(partial, path)
