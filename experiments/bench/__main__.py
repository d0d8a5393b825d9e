"""`make bench`: how fast the parts of Potstill are, each against the least that does the same work.

Both sides of a figure take turns, so that both meet the same machine; a figure is the median of its repetitions, and
the ratio the median over the pairs: above 1, ours is the slower or the larger.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.bench import machine, page
from experiments.bench.measuring import Bench
from experiments.bench.registry import PARTS, measure_of
from experiments.bench.table import shown


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--only", action="append", default=[], choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="smaller models, fewer repetitions: under 3 minutes")
    parser.add_argument(
        "--clients", type=int, default=1000, help="most clients of `growth`: 10000 takes a quarter hour"
    )
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    parser.add_argument(
        "--figures", type=Path, help="measure nothing: show, and put into the page, what --output wrote"
    )
    parser.add_argument("--page", type=Path, help="page to write anew, docs/performance.md, with its plot beside it")
    return parser


def run(parts: Sequence[str], quick: bool, clients: int, console: Console) -> dict[str, Any]:
    """Measure the parts; return the document that `--output` writes."""
    made: dict[str, Any] = {"machine": machine.description(), "quick": quick, "parts": {}}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        whole = progress.add_task("bench", total=len(parts))
        for part in parts:
            progress.update(whole, description=part)
            begun = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="potstill-bench-") as folder:
                bench = Bench(quick, Path(folder), clients, progress)
                figures = [figure.document() for figure in measure_of(part)(bench)]
            made["parts"][part] = {"seconds": round(time.monotonic() - begun, 1), "figures": figures}
            progress.advance(whole)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write what is asked for; return 1 where a ratio is beyond its limit."""
    given = _parser().parse_args(arguments)
    if given.figures:
        found = json.loads(given.figures.read_text(encoding="utf-8"))
    else:
        found = run(given.only or list(PARTS), given.quick, given.clients, Console(stderr=True))
    beyond = shown(found)
    if given.output:
        given.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if given.page:
        page.write(given.page, found)
    return int(bool(beyond))


if __name__ == "__main__":
    sys.exit(main())
