"""Tables, plots, verdicts and progress lines from outcomes made by hand."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from contract.wire.federations import Federation
from contract.wire.rounds import JobProgress
from experiments.evidence.bars import PAIRS, judge
from experiments.evidence.digits import averaged, write_page
from experiments.evidence.page import verdict_table
from potstill.demo import report
from potstill.demo.experiment import Outcome
from potstill.demo.methods import METHODS, Setting, request
from potstill.demo.watch import Lines, Watched, table


def outcome(method: str = "fedavg", seed: int = 0, accuracies: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8)) -> Outcome:
    return Outcome(method, METHODS[method].label, seed, list(accuracies))


def test_mean_last_three_and_first_round_at_a_bar() -> None:
    run = outcome()
    assert run.mean == pytest.approx(0.65)  # (0.5 + 0.6 + 0.7 + 0.8) / 4
    assert run.last_three == pytest.approx(0.7)  # (0.6 + 0.7 + 0.8) / 3
    assert (run.reached(0.7), run.reached(0.81)) == (3, None)


def test_table_has_a_column_for_each_round() -> None:
    heading, rows = report.table_rows([outcome(), outcome("feddf", accuracies=(0.25,))])
    assert heading == ["method", "1", "2", "3", "4", "mean", "last 3"]
    assert rows == [
        ["FedAvg", "50.0", "60.0", "70.0", "80.0", "65.0", "70.0"],
        ["FedDF", "25.0", "", "", "", "25.0", "25.0"],
    ]
    assert report.markdown([outcome()]).splitlines()[2] == "| FedAvg | 50.0 | 60.0 | 70.0 | 80.0 | 65.0 | 70.0 |"


def test_report_files(tmp_path: Path) -> None:
    report.write([outcome(), outcome("feddf")], tmp_path, "Title", {"seed": 0})
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert "# Title" in (tmp_path / "table.md").read_text()
    assert json.loads((tmp_path / "results.json").read_text())["outcomes"][1]["method"] == "feddf"
    with (tmp_path / "accuracy.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 8


def test_verdicts_are_paired_by_seed() -> None:
    runs = [outcome("fedgo-sigmoid", seed, (0.9, 0.9)) for seed in (0, 1)]
    runs += [outcome("feddf", 0, (0.7, 0.7)), outcome("feddf", 1, (0.8, 0.8)), outcome("feddf", 2, (0.1, 0.1))]
    first = judge(runs)[0]
    assert first.what == "FedGO plain odds minus FedDF"
    assert first.ours.startswith("+15.0 ± 7.1")  # differences 20 and 10; seed 2 has no partner
    assert first.held


def test_a_missed_bar_is_told() -> None:
    runs = [outcome("fedgo-sigmoid", accuracies=(0.5,)), outcome("feddf", accuracies=(0.5,))]
    verdicts = judge(runs)
    assert [verdict.held for verdict in verdicts] == [False, False, False]
    assert "**no**" in verdict_table(verdicts)


@pytest.mark.parametrize(
    ("second", "ours", "held"),
    [((0.9,) * 10, "1.5 ± 0.7 (rounds 2, 1)", True), ((0.5,) * 10, "6.5 ± 6.4 (rounds 2, –)", True),
     ((0.5,) * 15, "9.0 ± 9.9 (rounds 2, –)", False)],
)  # fmt: skip
def test_a_seed_that_never_gets_there_counts_as_the_round_after_the_last(
    second: tuple[float, ...], ours: str, held: bool
) -> None:
    runs = [outcome("fedgo-sigmoid", 0, (0.5, 0.9)), outcome("fedgo-sigmoid", 1, second)]
    last = judge(runs)[-1]
    assert (last.what, last.ours, last.held) == ("FedGO plain odds, first round with 80 %", ours, held)


def test_bars_are_those_of_the_experiment() -> None:
    assert {(bar.ahead, bar.behind): bar.least for bar in PAIRS} == {
        ("fedgo-sigmoid", "feddf"): 10,
        ("fedgo-sigmoid", "fedavg"): 6,
        ("fedgo-sigmoid", "variance"): 4,
        ("fedgo-double", "feddf"): 6,
        ("fedgo-double", "fedavg"): 3,
        ("fedgo-double", "samples"): 6,
        ("fedgo-double", "untrained"): 6,
        ("variance", "feddf"): 4,
        ("entropy", "feddf"): 7,
    }


def test_evidence_page(tmp_path: Path) -> None:
    runs = [outcome(method, seed) for method in METHODS for seed in (0, 1)]
    write_page(runs, judge(runs), tmp_path / "evidence.md", 120)
    text = (tmp_path / "evidence.md").read_text()
    assert "seeds 0 to 1, 2 minutes" in " ".join(text.split())
    assert (tmp_path / "img" / "evidence-digits.png").exists()
    assert averaged(runs)[0].accuracies == pytest.approx([0.5, 0.6, 0.7, 0.8])


@pytest.mark.parametrize("key", METHODS)
def test_every_method_is_a_recipe_that_can_be_built(key: str) -> None:
    from contract.recipes.presets import build

    body = request(METHODS[key], Setting(rounds=10, seed=0), unlabeled="u", test="t")
    recipe = build(METHODS[key].recipe, METHODS[key].options)
    assert body.rounds.min_updates == body.rounds.clients_per_round == 4
    if recipe.distil:
        schedule = recipe.distil.schedule
        assert (schedule.epochs, schedule.steps, schedule.batch_size, schedule.lr) == (10, None, 64, "constant")


def federation(**changes: Any) -> Federation:
    base = {
        "id": "fed_1", "name": "a", "state": "running", "recipe": "fedavg", "round": 1, "rounds_total": 2, "clients": 1,
        "created_at": "2026-01-01T00:00:00Z", "task": {"num_classes": 10, "input": {"shape": [1]}},
        "prototypes": [{"architecture": "mlp"}], "composition": {"name": "fedavg"}, "local": {}, "rounds": {},
        "datasets": {}, "seed": 0,
    }  # fmt: skip
    return Federation.model_validate(base | changes)


def test_lines_say_each_thing_once() -> None:
    said: list[str] = []
    lines, item = Lines(said.append), Watched("FedAvg", "fed_1")
    lines.update([item], 0)
    for seen in (
        federation(),
        federation(),
        federation(accuracies=[[1, 0.5]]),
        federation(accuracies=[[1, 0.5], [2, 0.75]], state="finished"),
        federation(accuracies=[[1, 0.5], [2, 0.75]], state="finished"),
    ):
        item.seen = seen
        lines.update([item], 1)
    assert [line.split("FedAvg: ")[1] for line in said] == [
        "running", "round 1/2, accuracy 50.0 %", "round 2/2, accuracy 75.0 %", "finished",
    ]  # fmt: skip


def test_live_table_names_the_worker_s_phase() -> None:
    from rich.console import Console

    item = Watched("FedAvg", "fed_1", federation(), JobProgress(phase="distil", step=3, of=9, eta=12.4))
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table([item, Watched("FedDF", "fed_2")], 3.0))
    assert "worker: distil 3/9, 12 s left" in capture.get()


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_watching_ends_with_the_first_failure(state: str) -> None:
    import httpx

    from client_sdk import OperatorClient
    from potstill.console import CliError
    from potstill.demo.watch import watch

    ended = federation(state=state, error="internal", detail="no room").model_dump(mode="json")

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/jobs":
            return httpx.Response(200, json={"items": [], "next": None})
        going_on = request.url.path.endswith("fed_2")
        return httpx.Response(200, json=ended | ({"state": "running"} if going_on else {}))

    with OperatorClient("http://service", "t", transport=httpx.MockTransport(answer)) as client:
        items = [Watched("FedAvg", "fed_1"), Watched("FedDF", "fed_2")]
        with pytest.raises(CliError, match=f"'FedAvg' ended as {state}: internal, no room"):
            watch(client, items, check=lambda: None)
