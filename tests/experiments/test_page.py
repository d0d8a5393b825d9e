"""The evidence page: sections stay when others are rewritten, and the summary counts what held."""

from pathlib import Path

import pytest

from experiments.evidence import page as pages
from experiments.evidence.run import EXPERIMENTS, run
from experiments.evidence.verdicts import Section, Verdict, ahead, level
from potstill.console import CliError


def section(held: bool | None) -> Section:
    return Section("Setting.\n", [Verdict("gain", "≥ +5", "+4.0", "+9", held)], {"a plot": "img/a.png"}, 3.0)


def write(page: Path, key: str, held: bool | None) -> str:
    pages.write(page, {key: pages.section_text(section(held), [0, 1])})
    return page.read_text()


def test_a_section_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "evidence.md"
    write(page, "feddf", True)
    first = write(page, "t1", True)
    assert first.index("## T1. FedGO's four Gaussians") < first.index("## FedDF on blobs")
    assert "Every bar held." in first
    second = write(page, "feddf", False)
    assert second.count("## FedDF on blobs") == 1
    assert "| [FedDF on blobs](#feddf-on-blobs) | 0 of 1 |" in second
    assert "- FedDF on blobs: gain: +4.0, bar ≥ +5." in second
    assert "| [T1. FedGO's four Gaussians](#t1-fedgos-four-gaussians) | 1 of 1 |" in second


def test_a_figure_that_is_only_reported_is_not_counted(tmp_path: Path) -> None:
    text = write(tmp_path / "evidence.md", "fedbe", None)
    assert "[FedBE on a Swiss roll]" not in text.split("## FedBE")[0]
    assert "| gain | ≥ +5 | +4.0 | +9 | – |" in text


def test_titles_are_those_of_the_experiments() -> None:
    assert list(pages.TITLES) == list(EXPERIMENTS)


def test_an_unknown_experiment_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no such experiment; choose from t1"):
        run(["t9"], None, 10, tmp_path, tmp_path / "page.md")


def test_verdicts_on_differences() -> None:
    good = ahead("gain", 5, [0.9, 0.8], [0.8, 0.7], "–", in_share=1.0)
    assert good.ours == "+10.0 ± 0.0, ahead in 2 of 2"
    assert good.held
    assert not ahead("gain", 5, [0.9, 0.7], [0.7, 0.71], "–", in_share=1.0).held  # mean holds, one seed does not
    assert ahead("gain", None, [0.9], [0.8], "–").held is None
    assert level("accuracy", 80, [0.79], "–").held is False
