"""The evidence page: sections stay when others are rewritten, and the summary counts what held."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.evidence import __main__ as command
from experiments.evidence import page as pages
from experiments.evidence import run as running
from experiments.evidence.run import EXPERIMENTS, SEEDS, VALIDATING, run
from experiments.evidence.verdicts import Section, Verdict, ahead, level, validated
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
    assert "- FedDF on blobs: gain: +4.0; bar ≥ +5." in second
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


@pytest.mark.parametrize(
    ("chosen", "fresh", "both"),
    [(True, True, True), (True, False, False), (False, True, False), (None, None, None)],
)
def test_a_bar_holds_when_fresh_seeds_reach_it_too(chosen: bool | None, fresh: bool | None, both: bool | None) -> None:
    again = replace(section(fresh).verdicts[0], ours="+3.0")
    found = validated(section(chosen), replace(section(fresh), verdicts=[again]), VALIDATING)
    assert (found.verdicts[0].held, found.verdicts[0].ours, found.verdicts[0].fresh) == (both, "+4.0", "+3.0")
    assert found.seconds == 6
    text = pages.section_text(found, range(SEEDS))
    assert "Run with seeds 0 to 19, then with fresh seeds 100 to 119, 6 seconds." in text
    assert "| quantity | bar | ours | fresh seeds | reference | held |" in text
    assert "| gain | ≥ +5 | +4.0 | +3.0 | +9 |" in text


def test_fresh_seeds_are_judged_by_the_same_bars() -> None:
    other = replace(section(True).verdicts[0], bar="≥ +1")
    with pytest.raises(ValueError, match="two runs of one experiment have rows"):
        validated(section(True), replace(section(True), verdicts=[other]), VALIDATING)


def test_a_bar_that_fresh_seeds_miss_is_named_with_both_figures(tmp_path: Path) -> None:
    page = tmp_path / "evidence.md"
    again = replace(section(False), verdicts=[replace(section(False).verdicts[0], ours="+3.0")])
    pages.write(page, {"feddf": pages.section_text(validated(section(True), again, VALIDATING), range(SEEDS))})
    assert "- FedDF on blobs: gain: +4.0; fresh seeds: +3.0; bar ≥ +5." in page.read_text()
    assert "| [FedDF on blobs](#feddf-on-blobs) | 0 of 1 |" in page.read_text()


@pytest.mark.parametrize(
    ("seeds", "first", "ran"),
    [
        (None, 0, [range(20), range(100, 120)]),
        (20, 0, [range(20)]),
        (None, 200, [range(200, 220)]),
        (3, 100, [range(100, 103)]),
    ],
)
def test_which_seeds_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: int | None, first: int, ran: Sequence[range]
) -> None:
    seen: list[list[int]] = []

    def run_one(key: str, numbers: Sequence[int], images: Path, data_dir: Path | None = None) -> Section:
        seen.append(list(numbers))
        return section(True)

    monkeypatch.setattr(running, "run_one", run_one)
    assert run(["feddf"], seeds, 10, tmp_path, tmp_path / "page.md", first=first) == 0
    assert seen == [list(each) for each in ran]


@pytest.mark.parametrize("first", ["-1", "1.5", "1000001"])
def test_a_first_seed_that_is_none_is_refused(first: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command._parser().parse_args(["--first", first])
    assert "argument --first: " in capsys.readouterr().err
    assert command._parser().parse_args(["--first", "100"]).first == 100
