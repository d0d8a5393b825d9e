"""Plans that change while a simulation runs, as an operator would change them."""

import json
from pathlib import Path
from typing import Any

import pytest

from contract.wire.changes import PlanChange
from potstill.simulate.config import SimulationConfig, SimulationError
from potstill.simulate.costs import report
from potstill.simulate.engine import Simulation
from potstill.simulate.history import History
from potstill.simulate.settings import Experiment

from .small import body, config, simulate
from .test_command import rows, small
from .test_engine import Stopped, files, stop_at


def given(folder: Path, changes: dict[int, dict[str, Any]], **more: Any) -> SimulationConfig:
    told = {index: PlanChange.model_validate(each) for index, each in changes.items()}
    return config(folder, body_=body(**{"local": {"epochs": 1, "batch_size": 4}} | more), changes=told)


def steps(history: History) -> list[list[int | None]]:
    return [[part.steps for part in record.participants] for record in history.rounds]


def test_rounds_from_there_on_have_the_new_plan(tmp_path: Path) -> None:
    """The rounds before are those without the change; then everybody trains three epochs in one batch each."""
    plain = Simulation(given(tmp_path / "plain", {})).run()
    change = {
        "local": {"epochs": 3, "batch_size": 64},
        "rounds": {"total": 4, "clients_per_round": 2, "min_updates": 2},
    }
    simulation = Simulation(given(tmp_path / "changed", {3: change}))
    history = simulation.run()
    assert files(history)[:3] == files(plain)[:3] and files(history)[3] != files(plain)[3]
    assert steps(history)[:2] == steps(plain)[:2]
    assert steps(history)[2:] == [[3, 3], [3, 3]], "two clients, three steps each, and a fourth round"
    found = report("changed", simulation.config, history, [])
    assert found is not None
    trained = [None if each.flops is None else each.flops.training for each in found.rounds]
    samples = [sum(part.num_samples for part in record.participants) for record in history.rounds]
    ratios = [flops / count for flops, count in zip(trained, samples, strict=True)]  # type: ignore[operator]
    assert ratios == pytest.approx([ratios[0], ratios[0], 3 * ratios[0], 3 * ratios[0]])


def test_a_stop_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[int, dict[str, Any]] = {2: {"local": {"epochs": 2}}, 3: {"local": {"epochs": 3}}}
    whole = Simulation(given(tmp_path / "whole", changes)).run()
    with monkeypatch.context() as patch:
        stop_at(patch, "training", 4)
        with pytest.raises(Stopped):
            Simulation(given(tmp_path / "cut", changes)).run()
    assert files(Simulation(given(tmp_path / "cut", changes)).run()) == files(whole)
    with pytest.raises(SimulationError, match="other data or settings"):
        Simulation(given(tmp_path / "cut", {2: {"local": {"epochs": 2}}}))


def test_a_change_ends_a_federation_sooner(tmp_path: Path) -> None:
    history = Simulation(given(tmp_path, {3: {"rounds": {"total": 2}}})).run()
    assert len(history.rounds) == 2 and history.ending is not None and history.ending.state == "finished"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({1: {"local": {"epochs": 2}}}, "changes: round 1 is none of 2 to 3"),
        ({4: {"local": {"epochs": 2}}}, "changes: round 4 is none of 2 to 3"),
        ({2: {"schedule": {"epochs": 2}}}, "changes: round 2: .*the recipe distils nothing"),
        ({3: {"rounds": {"total": 1}}}, "changes: round 3: .*round 2 has opened"),
        ({2: {"rounds": {"total": 2}}, 3: {"local": {"epochs": 2}}}, "changes: round 3 is none of 2 to 2"),
    ],
)
def test_what_the_service_would_refuse_is_refused(
    changes: dict[int, dict[str, Any]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SimulationError, match=message):
        Simulation(given(tmp_path / "none", changes))
    assert not (tmp_path / "none").exists()


def test_the_command_changes_what_each_recipe_has(mine: Path, tmp_path: Path) -> None:
    """The schedule is FedDF's alone; what devices do is everybody's, and central training keeps to their steps."""
    out = tmp_path / "out"
    told = ("--plan-at", "2:local.epochs=3", "--plan-at", "2:schedule.epochs=2", "--option", "schedule.epochs=1")
    done = small(mine, out, "--recipe", "fedavg", "--recipe", "feddf", "--central", *told)
    assert done.exit_code == 0, done.output

    def notes(name: str) -> list[dict[str, Any]]:
        home = out / "seed-0" / name / "rounds"
        return [json.loads((home / f"0000{index}" / "result.json").read_text()) for index in (1, 2)]

    for name in ("fedavg", "feddf"):
        one, two = ({each["client"]: each for each in note["note"]["participants"]} for note in notes(name))
        both = one.keys() & two.keys()
        assert both and all(two[who]["steps"] == 3 * one[who]["steps"] for who in both)
    learnt = [note["result"]["metrics"]["distil"]["main"]["steps"] for note in notes("feddf")]
    assert learnt[1] == 2 * learnt[0]
    taken = [sum(part["steps"] for part in note["note"]["participants"]) for note in notes("fedavg")]
    (alone,), (again,) = ([part["steps"] for part in note["note"]["participants"]] for note in notes("central"))
    assert alone == again == round(sum(taken) / 2)
    before = rows(out)
    resumed = simulate("--out", out, "--resume", "--central")
    assert resumed.exit_code == 0, resumed.output
    assert rows(out) == before, "what was left out of a change is not taken for null"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plan-at", "local.epochs=3"], "--plan-at local.epochs=3: expected a round"),
        (["--plan-at", "2:local.epochs"], "expected a round"),
        (["--plan-at", "2:local.epochs=0"], "changes.0.change.local.epochs"),
        (["--plan-at", "2:seed=3"], "seed: it cannot be changed"),
        (["--plan-at", "1:local.epochs=3"], "changes.0.from_round"),
        (["--plan-at", "9:local.epochs=3"], "round 9 is none of 2 to 2"),
        (["--plan-at", "2:schedule.epochs=3"], "schedule: no recipe that is compared distils"),
    ],
)
def test_a_change_that_cannot_be_is_one_line(arguments: list[str], message: str, mine: Path, tmp_path: Path) -> None:
    done = small(mine, tmp_path / "out", *arguments)
    assert done.exit_code == 1, done.output
    assert message in done.stderr.replace("\n", " "), done.stderr
    assert not (tmp_path / "out").exists()


def test_two_changes_of_a_round_are_refused() -> None:
    from potstill.simulate import experiment as experiments

    from .test_command import loaded

    change = {"from_round": 2, "change": {"local": {"epochs": 2}}}
    tree = {"recipes": [{"name": "fedavg"}], "clients": 4, "changes": [change, change]}
    with pytest.raises(SimulationError, match="changes: from round 2 on there are two"):
        experiments.check(Experiment.model_validate(tree), loaded())
