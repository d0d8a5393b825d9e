"""The experiments by name, run and written into the page."""

import importlib
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.evidence import page as pages
from experiments.evidence.verdicts import FRESH, Section, Setting, Verdict, validated
from potstill.console import CliError, out, print_table

SEEDS, VALIDATING = 20, range(100, 120)
"""How many seeds a cheap experiment is run with, by which its bars were chosen; and those that judge the bars after."""


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes:
        seeds: how many it is run with, from 0 on.
        where: 'module:function' under this package, imported when it is run; None for D1, which needs the service.
        fresh: whether the seeds of `VALIDATING` judge its bars too.
        packed: whether it reads a data set of the same name that is not part of potstill, and is left out without it.
    """

    seeds: int
    where: str | None
    fresh: bool = False
    packed: bool = False


EXPERIMENTS = {
    "t1": Experiment(SEEDS, "t1:run_shared", fresh=True),
    "t1-apart": Experiment(SEEDS, "t1:run_apart", fresh=True),
    "d1": Experiment(5, None),
    "d1-wiring": Experiment(SEEDS, "wiring:run", fresh=True),
    "feddf": Experiment(SEEDS, "blobs:run", fresh=True),
    "fedbe": Experiment(SEEDS, "fedbe:run", fresh=True),
    "fedsdd": Experiment(SEEDS, "fedsdd:run"),
    "fedet": Experiment(4, "fedet:run"),
    "scaffold": Experiment(SEEDS, "quadratics:run", fresh=True),
    "fedma": Experiment(3, "fedma:run"),
    "bits": Experiment(SEEDS, "bits:run", fresh=True),
    "secure": Experiment(SEEDS, "secure:run", fresh=True),
    "domain": Experiment(5, "simulated:other_domains"),
    "liars": Experiment(4, "simulated:lying_discriminators"),
    "reflux": Experiment(5, "reflux:run"),
    "tasks": Experiment(3, "tasks:run"),
    "buffered": Experiment(1, "buffered:run"),
    "mnist": Experiment(2, "packed:mnist", packed=True),
    "cifar10": Experiment(1, "packed:cifar10", packed=True),
    "agnews": Experiment(2, "packed:agnews", packed=True),
}


def run_one(key: str, seeds: Sequence[int], images: Path, data_dir: Path | None = None) -> Section:
    """Run one experiment that needs no service, on one thread: tiny networks wait for one another on several."""
    import torch

    where = EXPERIMENTS[key].where
    assert where is not None
    module, _, function = where.partition(":")
    console, begun, threads = out(), time.monotonic(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory(prefix="potstill-evidence-") as folder:
            setting = Setting(seeds, Path(folder), images, lambda line: console.print(line, style="dim"), data_dir)
            section: Section = getattr(importlib.import_module(f"experiments.evidence.{module}"), function)(setting)
    finally:
        torch.set_num_threads(threads)
    section.seconds = time.monotonic() - begun
    return section


def _run_all(key: str, seeds: Sequence[int], fresh: Sequence[int], images: Path, data_dir: Path | None) -> Section:
    """Run one experiment with its seeds, and again with fresh ones where there are any; plots are of the first."""
    section = run_one(key, seeds, images, data_dir)
    if not fresh:
        return section
    with tempfile.TemporaryDirectory(prefix="potstill-evidence-") as folder:
        return validated(section, run_one(key, fresh, Path(folder), data_dir), fresh)


def _show(title: str, verdicts: Sequence[Verdict], report: Path, key: str) -> None:
    out().print(title, style="bold")
    marks = {True: "yes", False: "no", None: "–"}
    rows = [[v.what, v.bar, v.ours, v.fresh or "–", v.reference, marks[v.held]] for v in verdicts]
    print_table(["quantity", "bar", "ours", FRESH, "reference", "held"], rows)
    raw = json.dumps([asdict(verdict) for verdict in verdicts], indent=2, ensure_ascii=False)
    (report / f"{key}.json").write_text(raw + "\n")


def _left_out(key: str, data_dir: Path | None, page: Path) -> bool:
    """Return whether an experiment's data set is not there; figures that the page has of it stay."""
    from experiments.evidence import packed

    reason = packed.missing(key, data_dir)
    if reason is None:
        return False
    out().print(f"{pages.TITLES[key]}: not run: {reason}")
    if pages.TITLES[key] not in pages.read(page):
        pages.write(page, {key: packed.SKIPPED.format(reason=reason)})
    return True


def run(
    only: Sequence[str],
    seeds: int | None,
    rounds: int,
    report: Path,
    page: Path,
    data_dir: Path | None = None,
    first: int = 0,
) -> int:
    """Run experiments, print their tables and put them into the page; return 0 when every bar held.

    Args:
        only: keys of `EXPERIMENTS`; empty for all, less those whose data set is not there.
        seeds: how many each; None for its own number, and for the fresh ones after them unless `first` is given.
        rounds: of D1's federations.
        report: folder for raw results and logs.
        page: the page to write, with its plots beside it.
        data_dir: folder of data sets that are not part of potstill; None for the environment's.
        first: the first seed.

    Raises:
        CliError: an experiment of that name does not exist, or one that was asked for has no data.
    """
    unknown = [key for key in only if key not in EXPERIMENTS]
    if unknown:
        raise CliError(f"--only {unknown[0]}: no such experiment; choose from {', '.join(EXPERIMENTS)}")
    report.mkdir(parents=True, exist_ok=True)
    held = True
    for key in only or EXPERIMENTS:
        numbers = list(range(first, first + (seeds or EXPERIMENTS[key].seeds)))
        fresh = VALIDATING if EXPERIMENTS[key].fresh and not (seeds or first) else ()
        if EXPERIMENTS[key].where is None:
            from experiments.evidence import digits

            held = digits.run(numbers, rounds, report, page) == 0 and held
            continue
        if EXPERIMENTS[key].packed and not only and _left_out(key, data_dir, page):
            continue
        section = _run_all(key, numbers, fresh, page.parent / "img", data_dir)
        held = held and section.held
        _show(pages.TITLES[key], section.verdicts, report, key)
        pages.write(page, {key: pages.section_text(section, numbers)})
    out().print(f"written: {page}; raw results: {report}")
    return 0 if held else 1
