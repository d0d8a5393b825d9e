"""The evidence page: one section an experiment, so that one can be run again without the others."""

import re
from collections.abc import Sequence
from pathlib import Path

from experiments.evidence import summary
from experiments.evidence.verdicts import FRESH, Section, Verdict

HEAD = """\
# Evidence

Small experiments in which the papers' claims show, or do not, on two CPU cores. `make evidence` runs them and rewrites
this page; `make evidence ARGS='--only t1'` repeats one. Devices train by the SDK's own functions, the
worker's pipeline averages, weighs and distils; D1 also goes through HTTP. Only data, measuring and plots belong to the
experiments.

Figures are means over seeds ± one standard deviation; differences are paired (same data, initial weights,
participation, mini-batches) and in percentage points. "Reference" is what a separate implementation saw when it set the
bars, "–" in the last column a figure that is reported and not judged. The last three experiments read data sets that
are not part of potstill, and are left out where no folder has them.

Where a seed takes seconds there are twenty, 0 to 19: by them each bar was chosen, or kept where a reference had set it.
A bar on the share of the seeds in which something is ahead is 90 % where it was all twenty, else two standard errors of
the difference of two such counts below what was seen, rounded down. Then twenty *fresh seeds*, 100 to 119, by which no
bar was set, are run and judged by the same bars; "yes" in the last column says that both held. FedSDD's bars, which
are exact, need none. Where a seed takes longer there are a few, and bars are on means alone: a count of so few is none.
`ARGS='--only feddf --first 200'` takes other seeds, `--seeds N` so many.
"""
TITLES = {
    "t1": "T1. FedGO's four Gaussians",
    "t1-apart": "T1 without shared data",
    "d1": "D1. Digits, ten devices, Dirichlet(0.1)",
    "d1-wiring": "D1 with weights from the true class counts",
    "feddf": "FedDF on blobs",
    "fedbe": "FedBE on a Swiss roll",
    "fedsdd": "FedSDD: cost, students, overlap",
    "fedet": "Fed-ET: communication",
    "scaffold": "SCAFFOLD on quadratics",
    "fedma": "FedMA: matching on digits",
    "bits": "One bit a weight: error feedback",
    "secure": "Secure rounds: what masking costs",
    "domain": "Server data of another domain",
    "liars": "FedGO: discriminators that lie",
    "reflux": "Reflux, our own recipe, on the digits",
    "tasks": "Kinds of task beside classification",
    "buffered": "Rounds that do not wait, by the clock",
    "mnist": "MNIST through the simulation",
    "cifar10": "CIFAR-10 through the simulation",
    "agnews": "AG News through the simulation",
}
"""Headings of the experiments' sections, in the order of the page."""
SUMMARY = "Summary"
CLAIMS = "What is not claimed"
SHOWN, NOT_SHOWN, BARS = "What shows, paper by paper", "What does not show", "Bars by experiment"
OUT_OF_REACH = f"- The papers' own accuracies, rounds and data: see [{CLAIMS.lower()}](#{summary.anchor(CLAIMS)})."
NOT_CLAIMED = """\
Absolute accuracies of the papers, a hundred rounds and five seeds each, are out of reach here. At this scale the
following did not hold in the reference, and nothing here says otherwise: FedDF over FedAvg on the digits, FedBE or
FedSDD over FedAvg over many rounds, FedGO's capped odds over variance or entropy weights on the digits, and a random
generator that works. FedGO over DaFKD with one sigmoid is small where data are two-dimensional and discriminators do
not overfit. Fed-ET's saving does not show at the reference's learning rate of 0.1. FedBE's and FedGO's own toy figures
leave widths, rates and sizes open; the variants above test the mechanism.
"""
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts in Markdown."""
    marks = {True: "yes", False: "**no**", None: "–"}
    rows = [["quantity", "bar", "ours", FRESH, "reference", "held"], ["---"] * 6]
    rows += [[v.what, v.bar, v.ours, v.fresh or "–", v.reference, marks[v.held]] for v in verdicts]
    if all(v.fresh is None for v in verdicts):
        rows = [row[:3] + row[4:] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def section_text(section: Section, seeds: Sequence[int]) -> str:
    """Return a section in Markdown, without its heading."""
    again = f", then with fresh {_seeds(section.fresh)}" if section.fresh else ""
    ran = f"Run with {_seeds(seeds)}{again}, {section.seconds:.0f} seconds.\n"
    parts = [section.text, ran, verdict_table(section.verdicts)]
    parts += [f"![{name}]({link})\n" for name, link in section.pictures.items()]
    return "\n".join(part.strip() + "\n" for part in parts)


def _seeds(seeds: Sequence[int]) -> str:
    return f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"


def read(page: Path) -> dict[str, str]:
    """Return the page's sections, heading -> text; none where there is no page."""
    if not page.exists():
        return {}
    pieces = _SECTION.split(page.read_text(encoding="utf-8"))
    return {title: text.strip() + "\n" for title, text in zip(pieces[1::2], pieces[2::2], strict=True)}


def write(page: Path, changes: dict[str, str]) -> None:
    """Put experiments' sections into the page and make its summary anew; the other sections stay.

    Args:
        page: file to write.
        changes: key of `TITLES` -> text.
    """
    sections = read(page) | {TITLES[key]: text for key, text in changes.items()}
    kept = {title: sections[title] for title in TITLES.values() if title in sections}
    texts = [HEAD, f"## {SUMMARY}\n\n{_summary(kept)}"]
    texts += [f"## {title}\n\n{text}" for title, text in kept.items()]
    texts.append(f"## {CLAIMS}\n\n{NOT_CLAIMED}")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(texts), encoding="utf-8")


def _summary(sections: dict[str, str]) -> str:
    """Return what shows, what does not, and how many bars held, from the sections' own tables."""
    tables = {key: summary.cells(sections[title]) for key, title in TITLES.items() if title in sections}
    counts, missed = _bars(sections)
    lines = [f"### {SHOWN}", "", summary.shown(tables, TITLES)]
    lines += [f"### {NOT_SHOWN}", "", *missed, *summary.missing(tables), OUT_OF_REACH, "", f"### {BARS}", "", *counts]
    return "\n".join([*lines, "", "Every bar held." if not missed else "Bars that were missed are named above."]) + "\n"


def _bars(sections: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the table of how many bars held, and a line for each that did not."""
    lines, missed = ["| experiment | bars held |", "| --- | --- |"], []
    for title, text in sections.items():
        table = summary.cells(text)
        judged = {row: cell for (row, column), cell in table.items() if column == "held" and cell != "–"}
        if not judged:
            continue
        held = sum(cell == "yes" for cell in judged.values())
        lines.append(f"| [{title}](#{summary.anchor(title)}) | {held} of {len(judged)} |")
        missed += [f"- {title}: {row}: {_missed(table, row)}." for row, cell in judged.items() if cell != "yes"]
    return lines, missed


def _missed(table: summary.Cells, row: str) -> str:
    fresh = table.get((row, FRESH))
    return table[row, "ours"] + (f"; {FRESH}: {fresh}" if fresh else "") + f"; bar {table[row, 'bar']}"
