"""The page's first page: what shows, a line a paper, and what does not; figures are those of the page's own tables."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.evidence.verdicts import FRESH

Cells = Mapping[tuple[str, str], str]
"""(first cell of a row, heading of a column) -> cell, over all tables of one section."""

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_RULE = re.compile(r"\|(?: -+:? \|)+")


@dataclass(frozen=True)
class Claim:
    """What a paper says, and the row that shows it.

    Attributes:
        paper: its method, authors and year.
        says: the claim, in a few words.
        experiment: key of the page's titles.
        quantity: the row of that experiment's verdicts.
    """

    paper: str
    says: str
    experiment: str
    quantity: str


CLAIMS = (
    Claim(
        "FedDF (Lin et al., 2020)",
        "a student of all clients' networks is ahead of their average",
        "feddf",
        "FedDF minus the average",
    ),
    Claim(
        "FedBE (Chen and Chao, 2021)",
        "networks drawn from a posterior teach more than the average knows",
        "fedbe",
        "Dirichlet S+A+C distilled minus the average",
    ),
    Claim(
        "Fed-ET (Cho et al., 2022)",
        "small clients train a large server at a fraction of the traffic",
        "fedet",
        "Fed-ET's parameters until the target, of FedAvg's",
    ),
    Claim(
        "FedSDD (Kwan and Song, 2023)",
        "distillation costs the same however many clients there are",
        "fedsdd",
        "FedSDD: cost with 20 clients over 8",
    ),
    Claim(
        "DaFKD (Wang et al., 2023)",
        "discriminators tell which teacher knows, where no data are shared",
        "t1-apart",
        "DaFKD with one sigmoid, server",
    ),
    Claim(
        "FedGO (Jang et al., 2025)",
        "odds of discriminators weigh teachers better than equal weights, through the service on real scans",
        "d1",
        "FedGO plain odds minus FedDF",
    ),
    Claim(
        "FedGO (Jang et al., 2025)",
        "capped odds bear discriminators that claim every image",
        "liars",
        "double sigmoid: five liars minus none",
    ),
    Claim(
        "SCAFFOLD (Karimireddy et al., 2020)",
        "control variates reach the common minimum although clients differ and only half take part",
        "scaffold",
        "SCAFFOLD, 3 of 6 clients: distance left, worst seed",
    ),
    Claim(
        "FedMA (Wang et al., 2020)",
        "matched units can be averaged where networks started apart",
        "fedma",
        "MLP, one round: FedMA minus own starts averaged",
    ),
    Claim(
        "Secure aggregation (Bonawitz et al., 2017)",
        "the mean is the same although the server sees no update and devices drop out",
        "secure",
        "masked minus plain FedAvg",
    ),
)


@dataclass(frozen=True)
class Cell:
    """A figure of the page: experiment, row and column."""

    experiment: str
    row: str
    column: str = "ours"


@dataclass(frozen=True)
class Shortfall:
    """Something that a paper sees and this page does not, as long as `one` is not above `other`.

    Attributes:
        says: the expectation that is not met.
        one: what should be larger.
        other: than this.
        figures: how the two are told, with {one} and {other}.
    """

    says: str
    one: Cell
    other: Cell | float
    figures: str


SHORTFALLS = (
    Shortfall(
        "FedDF over FedAvg on the digits",
        Cell("d1", "FedDF", "mean"),
        Cell("d1", "FedAvg", "mean"),
        "{one} % against {other} %, mean over the rounds",
    ),
    Shortfall(
        "FedDF over FedAvg on MNIST",
        Cell("mnist", "FedDF minus FedAvg, mean of the rounds"),
        0.0,
        "{one}",
    ),
    Shortfall(
        "FedGO's capped odds over variance weights (probabilities) on the digits",
        Cell("d1", "FedGO double sigmoid", "mean"),
        Cell("d1", "variance weights (probabilities)", "mean"),
        "{one} % against {other} %; plain odds lead in the early rounds",
    ),
    Shortfall(
        "FedGO's capped odds over entropy weights on the digits",
        Cell("d1", "FedGO double sigmoid", "mean"),
        Cell("d1", "entropy weights", "mean"),
        "{one} % against {other} %",
    ),
    Shortfall(
        "FedGO with an untrained generator over FedAvg on the digits",
        Cell("d1", "FedGO untrained generator", "mean"),
        Cell("d1", "FedAvg", "mean"),
        "{one} % against {other} %",
    ),
    *(
        Shortfall(
            f"FedGO over FedDF where the server's images are {where}",
            Cell("domain", f"FedGO plain odds minus FedDF, {where}"),
            0.0,
            "{one}",
        )
        for where in ("rotated", "photographs")
    ),
    Shortfall(
        "FedGO's plain odds where two of ten discriminators lie",
        Cell("liars", "plain odds, 2 liars"),
        Cell("liars", "FedDF, which reads no discriminators"),
        "{one} against FedDF's {other}",
    ),
    Shortfall(
        "FedBE's ensemble over the average across ten rounds",
        Cell("fedbe", "ten rounds of two epochs: ensemble"),
        Cell("fedbe", "ten rounds of two epochs: average"),
        "{one} against {other}",
    ),
    Shortfall(
        "Fed-ET's target at the reference's learning rate of 0.1, with every one of four seeds",
        Cell("fedet", "Fed-ET at the reference's rate 0.1: target reached"),
        3.0,
        "{one}",
    ),
    Shortfall(
        "One bit a weight without feedback over weights with it, under FedAvg, with fresh seeds",
        Cell("bits", "FedAvg: weights minus weights with feedback", FRESH),
        0.0,
        "{one}; a bar of -1, which seeds 0 to 19 held, was missed",
    ),
    *(
        Shortfall(
            f"FedMA over {other} on the digits, {rounds}, {net}",
            Cell("fedma", f"{net}, {rounds}: FedMA"),
            Cell("fedma", f"{net}, {rounds}: {other}"),
            "{one} against {other}",
        )
        for net, rounds, other in (
            ("MLP", "one round", "FedAvg"),
            ("MLP", "one round", "last layer by class"),
            ("MLP", "five rounds", "FedAvg"),
            ("convnet", "one round", "FedAvg"),
            ("convnet", "five rounds", "FedAvg"),
        )
    ),
)
"""What did not show when it was looked for; a line goes by itself when the figures turn."""


def cells(text: str) -> Cells:
    """Return all cells of a section's tables."""
    found: dict[tuple[str, str], str] = {}
    heading: list[str] = []
    before: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            heading = []
            continue
        row = [cell.strip() for cell in line.strip("|").split(" | ")]
        if _RULE.fullmatch(line):
            heading = before
        elif heading:
            found |= {(row[0], column): cell for column, cell in zip(heading[1:], row[1:], strict=True)}
        before = row
    return found


def shown(sections: Mapping[str, Cells], titles: Mapping[str, str]) -> str:
    """Return the table of claims whose experiments are on the page."""
    lines = ["| paper | claim | bar | result | " + FRESH + " | held |", "| --- | --- | --- | --- | --- | --- |"]
    for claim in CLAIMS:
        table = sections.get(claim.experiment)
        if table is not None and (claim.quantity, "ours") in table:
            bar, ours, held = (table[claim.quantity, column] for column in ("bar", "ours", "held"))
            link = f"[{claim.says}](#{anchor(titles[claim.experiment])})"
            fresh = table.get((claim.quantity, FRESH), "–")
            lines.append(f"| {claim.paper} | {link}: {claim.quantity} | {bar} | {ours} | {fresh} | {held} |")
    return "\n".join(lines) + "\n"


def missing(sections: Mapping[str, Cells]) -> list[str]:
    """Return a line for each expectation that the page's figures do not meet."""
    lines = []
    for each in SHORTFALLS:
        one = _cell(sections, each.one)
        other = each.other if isinstance(each.other, float) else _cell(sections, each.other)
        if one is not None and other is not None and number(one) <= number(other):
            lines.append(f"- {each.says}: {each.figures.format(one=one, other=other)}.")
    return lines


def number(cell: str | float) -> float:
    """Return a cell's first number.

    Raises:
        ValueError: it has none.
    """
    if isinstance(cell, float):
        return cell
    found = _NUMBER.search(cell)
    if found is None:
        raise ValueError(f"no number in {cell!r}")
    return float(found[0])


def anchor(title: str) -> str:
    """Return what a heading is linked by."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _cell(sections: Mapping[str, Cells], cell: Cell) -> str | None:
    return sections.get(cell.experiment, {}).get((cell.row, cell.column))
