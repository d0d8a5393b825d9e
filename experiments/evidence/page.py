"""The evidence page: one section an experiment, so that one can be run again without the others."""

import re
from collections.abc import Sequence
from pathlib import Path

from experiments.evidence import summary
from experiments.evidence.verdicts import Section, Verdict

HEAD = """\
# Evidence

Small experiments in which the papers' claims show, or do not, on two CPU cores. `make evidence` runs them and rewrites
this page; `make evidence ARGS='--only t1 --seeds 10'` repeats one. Devices train by the SDK's own functions, the
worker's pipeline averages, weighs and distils; D1 also goes through HTTP. Only data, measuring and plots belong to the
experiments.

Figures are means over seeds ± one standard deviation; differences are paired (same data, initial weights,
participation, mini-batches) and in percentage points. "Reference" is what a separate implementation saw when it set the
bars, "–" in the last column a figure that is reported and not judged. The last three experiments read data sets that
are not part of potstill, and are left out where no folder has them.
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
_ROW = re.compile(
    r"^\| (?P<what>.+?) \| (?P<bar>.+?) \| (?P<ours>.+?) \| (?P<seen>.+?) \| (?P<held>.+?) \|$", re.MULTILINE
)


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts in Markdown."""
    marks = {True: "yes", False: "**no**", None: "–"}
    lines = ["| quantity | bar | ours | reference | held |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {v.what} | {v.bar} | {v.ours} | {v.reference} | {marks[v.held]} |" for v in verdicts]
    return "\n".join(lines) + "\n"


def section_text(section: Section, seeds: Sequence[int]) -> str:
    """Return a section in Markdown, without its heading."""
    several = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
    parts = [section.text, f"Run with {several}, {section.seconds:.0f} seconds.\n", verdict_table(section.verdicts)]
    parts += [f"![{name}]({link})\n" for name, link in section.pictures.items()]
    return "\n".join(part.strip() + "\n" for part in parts)


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
        rows = [row for row in _ROW.finditer(text) if row["held"] in ("yes", "**no**")]
        if not rows:
            continue
        held = sum(row["held"] == "yes" for row in rows)
        lines.append(f"| [{title}](#{summary.anchor(title)}) | {held} of {len(rows)} |")
        missed += [
            f"- {title}: {row['what']}: {row['ours']}, bar {row['bar']}." for row in rows if row["held"] != "yes"
        ]
    return lines, missed
