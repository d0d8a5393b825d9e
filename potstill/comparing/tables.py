"""Comparisons as tables: for people, as CSV and JSON for programs, in Markdown."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from contract.wire.report import TargetCost
from potstill.comparing.differences import Difference, differences, shown
from potstill.comparing.sides import Side, devices_of, server_of, size_of
from potstill.console import CliError, size
from potstill.drawing import as_markdown
from potstill.figures import measured
from service.domain import costs


@dataclass(frozen=True)
class Comparison:
    """What is compared, and by which targets.

    Attributes:
        sides: at least one.
        targets: values of what they are measured by whose cost is told.
        unlike: the parts in which they differ.
    """

    sides: Sequence[Side]
    targets: Sequence[float]
    unlike: Sequence[Difference]


def compare(sides: Sequence[Side], targets: Sequence[float] | None = None) -> Comparison:
    """Return a comparison; where no targets are said, those of shares that any of them reached.

    Raises:
        CliError: a target is out of reach, as it is no share and all are measured by shares.
    """
    shares = all(each.metric.is_share for each in sides)
    wrong = next((each for each in targets or () if shares and not 0 <= each <= 1), None)
    if wrong is not None:
        raise CliError(f"--target {wrong:g}: {sides[0].report.metric} is a share, in [0, 1], such as 0.8")
    asked = (costs.TARGETS if shares else ()) if targets is None else targets
    kept = [each for each in asked if targets is not None or any(_reached(side, each).cost for side in sides)]
    return Comparison(sides, kept, differences([each.report.parts for each in sides]))


def _reached(side: Side, target: float) -> TargetCost:
    report = side.report
    return costs.to_target(target, report.first, report.before, report.rounds, side.metric)


def row(side: Side, targets: Sequence[float]) -> dict[str, Any]:
    """Return the figures of one side: shares in [0, 1], sizes in bytes of devices' files."""
    report, last, best = side.report, side.curve[-1] if side.curve else None, side.best
    flops = report.total.flops
    return {
        "name": side.name,
        "recipe": report.recipe,
        "state": report.state,
        "rounds": len(report.rounds),
        "metric": report.metric,
        "last": None if last is None else last.value,
        "best": None if best is None else best.value,
        "best in round": None if best is None else best.round,
        "bytes": size_of(report.total),
        "bytes to devices": report.total.files.down,
        "bytes from devices": report.total.files.up,
        "seconds": round(side.seconds(report.rounds), 3),
        "seconds of": side.time,
        "FLOPs devices": None if flops is None else devices_of(flops),
        "FLOPs server": None if flops is None else server_of(flops),
    } | {name: value for target in targets for name, value in _until(side, target).items()}


def _until(side: Side, target: float) -> dict[str, Any]:
    found, name = _reached(side, target), f"to {target:g}"
    if found.cost is None or found.round is None:
        return {f"{name} rounds": None, f"{name} bytes": None, f"{name} seconds": None}
    took = side.seconds([each for each in side.report.rounds if each.round <= found.round])
    return {
        f"{name} rounds": found.round,
        f"{name} bytes": size_of(found.cost),
        f"{name} seconds": round(took, 3),
    }


def figures(told: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows for people; what a side was measured by is a column where that is not the same."""
    mixed = len({each.report.metric for each in told.sides}) > 1
    first = told.sides[0].report.metric
    heading = ["", "recipe", "state", "rounds", *(["of"] if mixed else [])]
    heading += [f"{'' if mixed else _words(first) + ', '}last", "best", "in round", "to devices", "from devices"]
    heading += ["seconds", "seconds of", "FLOPs devices", "FLOPs server"]
    return heading, [_figures(row(side, ()), mixed) for side in told.sides]


def _words(metric: str) -> str:
    return metric.replace("_", " ")


def _figures(found: dict[str, Any], mixed: bool) -> list[str]:
    metric = found["metric"]
    flops = [found["FLOPs devices"], found["FLOPs server"]]
    return [
        found["name"], found["recipe"], found["state"], str(found["rounds"]), *([_words(metric)] if mixed else []),
        measured(found["last"], metric), measured(found["best"], metric), _cell(found["best in round"]),
        size(found["bytes to devices"]), size(found["bytes from devices"]), f"{found['seconds']:.4g}",
        found["seconds of"], *("–" if each is None else f"{each:.3g}" for each in flops),
    ]  # fmt: skip


def _cell(value: Any) -> str:
    return "–" if value is None else str(value)


def reached(told: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows: rounds, bytes and seconds until each target was first reached."""
    heading, rows = ["", "target", "rounds", "bytes", "seconds"], []
    for target in told.targets:
        for side in told.sides:
            found = list(_until(side, target).values())
            count, bytes_, took = found
            cells = ["–", "–", "–"] if count is None else [str(count), size(bytes_), f"{took:.4g}"]
            rows.append([side.name, measured(target, side.report.metric), *cells])
    return heading, rows


def unlike(told: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows: the parts in which they differ."""
    return ["part", *(each.name for each in told.sides)], [
        [each.part, *(shown(value) for value in each.values)] for each in told.unlike
    ]


def as_data(told: Comparison) -> dict[str, Any]:
    """Return a comparison for programs: figures, curves, and the parts in which they differ."""
    keys = ("round", "value", "bytes", "seconds")
    return {
        "sides": [
            {
                **row(side, told.targets),
                "curve": [
                    dict(zip(keys, (at.round, at.value, at.size, round(at.seconds, 3)), strict=True))
                    for at in side.curve
                ],
            }
            for side in told.sides
        ],
        "differences": [
            {"part": each.part, "values": dict(zip((side.name for side in told.sides), each.values, strict=True))}
            for each in told.unlike
        ],
    }


def as_csv(told: Comparison) -> str:
    """Return a line a side: figures, then a column for every part in which they differ."""
    out, rows = StringIO(), [row(side, told.targets) for side in told.sides]
    writer = csv.writer(out)
    writer.writerow([*rows[0], *(each.part for each in told.unlike)])
    for at, found in enumerate(rows):
        parts = ["" if each.values[at] is None else shown(each.values[at]) for each in told.unlike]
        writer.writerow([*("" if value is None else value for value in found.values()), *parts])
    return out.getvalue()


def as_page(told: Comparison) -> str:
    """Return the tables in Markdown."""
    found = [as_markdown(*figures(told))]
    found += [f"Until first reached:\n\n{as_markdown(*reached(told), texts=1)}"] if told.targets else []
    heading, rows = unlike(told)
    cells = [[cell.replace("|", r"\|") for cell in each] for each in rows]
    found += [f"What differs:\n\n{as_markdown(heading, cells, texts=len(heading))}"] if rows else []
    return "\n".join(found)


_FORMS = {".csv": as_csv, ".json": lambda told: json.dumps(as_data(told), indent=2) + "\n", ".md": as_page}


def write(told: Comparison, path: Path) -> None:
    """Write a comparison in the form that a file's name asks for.

    Raises:
        CliError: it asks for none of these.
    """
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        raise CliError(f"--output {path}: its name has to end in {', '.join(_FORMS)}")
    path.write_text(form(told), encoding="utf-8", newline="")
