import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from contract.wire.federations import InputSpec, Task
from potstill.samples import Samples
from potstill.simulate import experiment as experiments
from potstill.simulate import settings
from potstill.simulate.config import SimulationError
from potstill.simulate.loaded import Loaded
from potstill.simulate.settings import Experiment

from .small import samples, simulate


def small(mine: Path, out: Path, *more: object) -> Result:
    return simulate(
        "--data", mine, "--clients", 4, "--rounds", 2, "--seeds", 2, "--alpha", 1, "--local", "epochs=1",
        "--clients-per-round", 2, "--out", out, *more,
    )  # fmt: skip


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_recipes_are_compared_on_the_same_ground(mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = small(mine, out, "--recipe", "fedavg", "--recipe", "feddf", "--option", "schedule.epochs=1")
    assert done.exit_code == 0, done.output
    lines = rows(out)
    assert len(lines) == 2 * 2 * 3
    assert {(line["recipe"], line["seed"]) for line in lines} == {(r, s) for r in ("fedavg", "feddf") for s in "01"}
    first = {(line["seed"], line["accuracy"]) for line in lines if line["round"] == "0"}
    assert len(first) == 2, "the first models are the same for both recipes, and not for both seeds"
    for seed in (0, 1):
        results = [json.loads((out / f"seed-{seed}" / r / "rounds/00001/result.json").read_text()) for r in
                   ("fedavg", "feddf")]  # fmt: skip
        one, other = ([part["client"] for part in each["note"]["participants"]] for each in results)
        assert one == other and len(one) == 2
        assert results[0]["note"]["participants"][0]["loss"] == results[1]["note"]["participants"][0]["loss"]
        assert (out / f"seed-{seed}" / "clients.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert "| feddf | 2 |" in (out / "table.md").read_text()
    reports = [json.loads((out / "seed-0" / r / "report.json").read_text()) for r in ("fedavg", "feddf")]
    one, other = (each["total"] for each in reports)
    assert one["files"] == other["files"], "distillation costs devices nothing"
    assert one["flops"]["training"] == other["flops"]["training"] > 0 == one["flops"]["distillation"]
    assert other["flops"]["distillation"] > other["flops"]["labelling"] > 0
    assert [each["target"] for each in reports[0]["targets"]] == [0.5, 0.6, 0.7, 0.8, 0.9]
    assert "| recipe | in all | to 50 % |" in (out / "costs.md").read_text()
    assert all(line["ensemble_accuracy"] for line in lines if line["recipe"] == "feddf" and line["round"] != "0")


def test_a_folder_in_use_is_gone_on_with_by_the_same_command_and_added_to_by_resume(mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert small(mine, out).exit_code == 0
    before = rows(out)
    assert small(mine, out).exit_code == 0
    assert rows(out) == before, "what was done is read, times included"
    refused = small(mine, out, "--samples", 100)
    assert refused.exit_code == 1
    assert "its samples is null, and 100 is asked for" in refused.stderr and "--resume" in refused.stderr
    again = simulate("--out", out, "--resume", "--recipe", "fedavg", "--recipe", "fedprox")
    assert again.exit_code == 0, again.output
    kept = [line for line in rows(out) if line["recipe"] == "fedavg"]
    assert kept == before
    assert len(rows(out)) == 2 * len(before)
    other = simulate("--out", out, "--resume", "--alpha", 2)
    assert other.exit_code == 1 and "other data or settings" in other.stderr


def test_a_file_describes_an_experiment(mine: Path, tmp_path: Path) -> None:
    tree = {
        "data": str(mine), "clients": 4, "rounds": 1, "seeds": 3, "partition": "iid", "local": {"epochs": 1},
        "recipes": [
            {"name": "fedavg", "label": "plain"},
            {"name": "mine", "recipe": {"name": "mine", "fuse": {"kind": "median"}}, "local": {"batch_size": 8}},
        ],
    }  # fmt: skip
    path = tmp_path / "experiment.json"
    path.write_text(json.dumps(tree))
    out = tmp_path / "out"
    done = simulate("--config", path, "--seeds", 1, "--out", out)
    assert done.exit_code == 0, done.output
    assert {(line["recipe"], line["seed"]) for line in rows(out)} == {("plain", "0"), ("mine", "0")}


def test_clients_are_users_of_the_file(tmp_path: Path) -> None:
    """Sixty users of four samples each, all of one class: whatever test and server take, a client has one user's."""
    inputs, labels = samples(0, 240)
    order = np.argsort(labels, kind="stable")
    users = np.array([f"u{number // 4:02}" for number in range(240)])
    np.savez(tmp_path / "mine.npz", x=inputs[order], y=labels[order], users=users)
    (tmp_path / "few.json").write_text(json.dumps({"smallest": 3}))
    out = tmp_path / "out"
    told = ("--data", tmp_path / "mine.npz", "--partition", "user", "--config", tmp_path / "few.json")
    done = simulate(
        *told, "--clients", 3, "--rounds", 1, "--seeds", 2, "--local", "epochs=1", "--server-samples", 0, "--out", out
    )
    assert done.exit_code == 0, done.output
    notes = [json.loads((out / f"seed-{seed}" / "clients.json").read_text()) for seed in (0, 1)]
    for note in notes:
        assert sorted(note) == ["client-0", "client-1", "client-2"]
        assert len({each["user"] for each in note.values()}) == 3
        assert all(3 <= each["samples"] <= 4 for each in note.values())
    assert notes[0] != notes[1], "another seed draws others"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--partition", "user"], "the data do not say whose a sample is"),
        (["--recipe", "nope"], "unknown recipe 'nope'"),
        (["--partition", "rings"], "partition: Input should be"),
        (["--partition", "iid", "--balanced", "feddf"], "balanced: goes with partition dirichlet"),
        (["--option", "lunk=1"], "has no option 'lunk'"),
        (["--option", "fedgo:link=sigmoid"], "there is no recipe 'fedgo'"),
        (["--recipe", "fedavg", "--recipe", "fedavg"], "'fedavg' comes twice"),
        (["--recipe", "fedsdd", "--clients-per-round", "2"], "4 groups"),
        (["--local", "epochs=0"], "fedavg: local.epochs|epochs"),
        (["--architecture-option", "width=3"], "--architecture"),
        (["--samples", "100000"], "100000 samples are asked for"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_leaves_nothing(
    arguments: list[str], message: str, mine: Path, tmp_path: Path
) -> None:
    import re

    out = tmp_path / "out"
    done = simulate("--data", mine, "--clients", 4, "--out", out, *arguments)
    assert done.exit_code == 1, done.output
    assert re.search(message, done.stderr.replace("\n", " ")), done.stderr
    assert "Traceback" not in done.stderr and not out.exists()


def test_without_torch_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.startswith(("potstill.simulate", "client_sdk.runner"))]:
        package, _, module = name.rpartition(".")
        if hasattr(sys.modules[package], module):  # it would keep the module that is imported here
            monkeypatch.delattr(sys.modules[package], module)
    for name in [name for name in sys.modules if name.startswith(("potstill.simulate", "client_sdk.runner"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    done = simulate("--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "pip install '.[worker,client,demo]' in the clone" in done.stderr


def loaded(shape: tuple[int, ...] = (6,), count: int = 200) -> Loaded:
    random = np.random.default_rng(0)
    made = Samples(random.random((count, *shape), dtype=np.float32), random.integers(0, 3, count))
    return Loaded("mine", 3, made)


def make(**more: object) -> Experiment:
    return Experiment.model_validate({"recipes": [{"name": "fedavg"}], "clients": 4} | more)


def test_parts_are_disjoint_and_as_large_as_asked_for() -> None:
    everything = loaded()
    dealt = experiments.deal(
        make(test_samples=30, server_samples=40, validation_samples=10, samples=80), everything, seed=1
    )
    parts = [dealt.test, dealt.server, dealt.validation, *dealt.clients.values()]
    assert [len(part) for part in parts[:3]] == [30, 40, 10]
    assert sum(map(len, parts[3:])) == 80
    seen = np.concatenate([part.inputs for part in parts])
    assert len(np.unique(seen, axis=0)) == 160
    assert list(dealt.clients) == ["client-0", "client-1", "client-2", "client-3"]
    assert dealt.holdings.shape == (4, 3) and dealt.holdings.sum() == 80


def test_a_server_part_of_the_data_sets_own_is_taken() -> None:
    whole, own = loaded(), loaded(count=50).train
    dealt = experiments.deal(make(validation_samples=20), Loaded("mine", 3, whole.train, whole.train, own), seed=0)
    assert (len(dealt.server), len(dealt.validation), len(dealt.test)) == (30, 20, 200)
    assert sum(map(len, dealt.clients.values())) == 200


def test_seeds_split_anew() -> None:
    one, same, other = (experiments.deal(make(), loaded(), seed) for seed in (1, 1, 2))
    assert np.array_equal(one.test.inputs, same.test.inputs)
    assert not np.array_equal(one.test.inputs, other.test.inputs)


IMAGES = Task(num_classes=10, input=InputSpec(shape=[1, 8, 8]))


def test_asked_for_options_win_over_short_lengths() -> None:
    experiment = make(recipes=[{"name": "fedgo-small", "options": {"generator": {"steps": 7}}}])
    body = settings.federation(experiment, experiment.recipes[0], IMAGES, 0)
    options = body.recipe.options  # type: ignore[union-attr]
    from contract.recipes import parts, presets

    recipe = presets.build("fedgo-small", options)
    assert recipe.discriminators is not None and recipe.distil is not None
    generator = recipe.discriminators.generator
    assert isinstance(generator, parts.GeneratorWganGp) and generator.steps == 7
    assert recipe.distil.schedule.epochs == 10 and recipe.distil.schedule.steps is None
    assert body.local is not None and body.local.epochs == 10


def test_paper_lengths_are_the_presets_own() -> None:
    from contract.recipes import presets

    experiment = make(recipes=[{"name": "feddf"}], lengths="paper")
    body = settings.federation(experiment, experiment.recipes[0], IMAGES, 0)
    assert presets.build("feddf", body.recipe.options) == presets.PRESETS["feddf"].recipe  # type: ignore[union-attr]
    assert body.local == presets.PRESETS["feddf"].local


def test_fed_et_gives_all_recipes_networks_with_its_head() -> None:
    experiment = make(recipes=[{"name": "fedavg"}, {"name": "fedet"}])
    plain, larger = (settings.federation(experiment, entry, IMAGES, 0) for entry in experiment.recipes)
    assert plain.prototypes == larger.prototypes
    assert plain.prototypes[0].options["common_head"] is True
    assert plain.server_model is None
    assert larger.server_model is not None and larger.server_model.options["common_head"] is True


def test_scaffold_keeps_plain_sgd() -> None:
    experiment = make(recipes=[{"name": "scaffold"}])
    body = settings.federation(experiment, experiment.recipes[0], IMAGES, 0)
    assert body.local is not None and body.local.optimizer.kind == "sgd" and body.local.epochs == 10


def test_labels_become_folders_of_their_own() -> None:
    assert experiments.folder_name("../FedGO, link = sigmoid") == "_FedGO__link___sigmoid"
    with pytest.raises(SimulationError, match="comes twice"):
        experiments.check(make(recipes=[{"name": "fedavg"}, {"name": "fedavg"}]), loaded())


def test_rounds_that_do_not_wait_go_by_the_virtual_clock(mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = ("--round-option", "mode=buffered", "--round-option", "buffer=2")
    done = small(mine, out, "--speeds", "spread=10", "--speeds", "dropout=0.1", *plan, "--target", 0.4)
    assert done.exit_code == 0, done.output
    clocks = [float(line["clock"]) for line in rows(out) if line["round"] != "0" and line["seed"] == "0"]
    assert clocks == sorted(clocks)
    assert clocks[0] > 0
    assert "to 40 %" in (out / "times.md").read_text()
    assert (out / "time.png").read_bytes().startswith(b"\x89PNG")


def test_a_plan_of_rounds_and_speeds_that_cannot_be_are_refused(mine: Path, tmp_path: Path) -> None:
    refused = small(mine, tmp_path / "a", "--round-option", "buffer=2")
    assert refused.exit_code == 1
    assert "set mode to 'buffered'" in refused.output
    refused = small(mine, tmp_path / "b", "--speeds", "spread=0")
    assert refused.exit_code == 1
    assert "speeds.spread" in refused.output
