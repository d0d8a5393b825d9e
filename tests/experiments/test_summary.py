"""The summary in front of the evidence: its figures are the page's, and it says what does not show."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.evidence import page as pages
from experiments.evidence import summary
from experiments.evidence.run import SEEDS
from experiments.evidence.summary import CLAIMS, SHORTFALLS, Cell, Shortfall
from experiments.evidence.verdicts import FRESH

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"
FED = {
    "feddf": {("FedDF", "mean"): "61.4", ("FedAvg", "mean"): "63.7", ("gain", "ours"): "-0.9 ± 5.3, ahead in 1 of 2"}
}


@pytest.fixture(scope="module")
def tables() -> dict[str, summary.Cells]:
    sections = pages.read(PAGE)
    return {key: summary.cells(sections[title]) for key, title in pages.TITLES.items() if title in sections}


def test_the_page_is_what_its_own_tables_give(tmp_path: Path) -> None:
    copy = tmp_path / "evidence.md"
    shutil.copy(PAGE, copy)
    pages.write(copy, {})
    assert copy.read_text() == PAGE.read_text()


def test_every_claim_has_its_row(tables: dict[str, summary.Cells]) -> None:
    lines = summary.shown(tables, pages.TITLES).splitlines()[2:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == [claim.paper for claim in CLAIMS]
    for claim, line in zip(CLAIMS, lines, strict=True):
        assert f"| {tables[claim.experiment][claim.quantity, 'ours']} |" in line


def test_every_expectation_names_cells_of_the_page(tables: dict[str, summary.Cells]) -> None:
    cells = [cell for each in SHORTFALLS for cell in (each.one, each.other) if isinstance(cell, Cell)]
    assert [cell for cell in cells if (cell.row, cell.column) not in tables[cell.experiment]] == []


def test_a_bar_that_counts_seeds_has_twenty_and_twenty_fresh_ones(tables: dict[str, summary.Cells]) -> None:
    counted = [
        (table[row, "ours"], table.get((row, FRESH), "–"))
        for table in tables.values()
        for (row, column), bar in table.items()
        if column == "bar" and "seeds" in bar
    ]
    assert len(counted) >= 10
    assert [each for each in counted if not all(figure.endswith(f" of {SEEDS}") for figure in each)] == []


def test_links_lead_to_headings() -> None:
    anchors = {summary.anchor(line.removeprefix("## ")) for line in PAGE.read_text().splitlines() if line[:3] == "## "}
    linked = {part.split(")")[0] for part in PAGE.read_text().split("](#")[1:]}
    assert linked and linked <= anchors


def test_an_expectation_that_is_met_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    below = Shortfall(
        "FedDF over FedAvg", Cell("feddf", "FedDF", "mean"), Cell("feddf", "FedAvg", "mean"), "{one}, {other}"
    )
    above = replace(below, one=Cell("feddf", "FedAvg", "mean"), other=below.one)
    monkeypatch.setattr(summary, "SHORTFALLS", (below, above, replace(below, one=Cell("feddf", "gain"), other=0.0)))
    assert summary.missing(FED) == [
        "- FedDF over FedAvg: 61.4, 63.7.",
        "- FedDF over FedAvg: -0.9 ± 5.3, ahead in 1 of 2, 0.0.",
    ]
    assert summary.missing({}) == []


def test_cells_of_several_tables() -> None:
    text = "words\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n\n| c | d | e |\n| --- | --- | --- |\n| x | 2 | 3 |\n"
    assert summary.cells(text) == {("x", "b"): "1", ("x", "d"): "2", ("x", "e"): "3"}


def test_a_missed_bar_stands_among_what_does_not_show(tmp_path: Path) -> None:
    copy = tmp_path / "evidence.md"
    text = PAGE.read_text()
    row = next(line for line in text.splitlines() if line.startswith("| FedDF minus the average |"))
    _, bar, ours, fresh, *_ = row.split(" | ")
    copy.write_text(text.replace(row, row.replace("| yes |", "| **no** |")))
    pages.write(copy, {})
    front = copy.read_text().split("\n## T1")[0]
    missed = f"- FedDF on blobs: FedDF minus the average: {ours}; fresh seeds: {fresh}; bar {bar}."
    assert missed in front.split(f"### {pages.NOT_SHOWN}")[1]
    assert "Every bar held." not in front
    assert f"| {ours} | {fresh} | **no** |" in front


def test_a_cell_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="no number in 'never'"):
        summary.number("never")
