import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.tensors import TensorFile, check_file
from contract.wire.report import Bytes, Flops
from potstill.simulate.config import SimulatedClient, SimulationError
from potstill.simulate.costs import report
from potstill.simulate.engine import Simulation
from potstill.simulate.history import History, RoundRecord, digest_of
from tests.reference import accountant
from worker.specs import JobFailure

from .small import LOCAL, NAMES, body, config, samples

SCHEDULE = {"schedule": {"epochs": 1, "batch_size": 16}}
FEDGAN = {
    **SCHEDULE,
    "generator": {"kind": "fedgan", "rounds": 2, "epochs": 1, "batch_size": 8, "input_range": [-3.0, 3.0]},
    "data": {"kind": "generated", "count": 20},
    "plan": {"architecture": "disc-mlp", "epochs": 1},
}
STATEFUL: dict[str, dict[str, Any]] = {
    "feddf": {"recipe": {"name": "feddf", "options": SCHEDULE}},
    "fedavgm": {"recipe": {"name": "fedavgm"}},
    "scaffold": {"recipe": {"name": "scaffold"}, "local": {"objective": {"kind": "scaffold"}, **LOCAL}},
    "fedgkd": {"recipe": {"name": "fedgkd"}, "local": {"objective": {"kind": "fedgkd"}, **LOCAL}},
    "moon": {"recipe": {"name": "moon"}, "local": {"objective": {"kind": "moon"}, **LOCAL}},
    "ds-fl": {
        "recipe": {"name": "ds-fl", "options": SCHEDULE},
        "local": {"objective": {"kind": "ds_fl", "imitation_epochs": 1}, **LOCAL},
    },
    "fedsdd": {"recipe": {"name": "fedsdd", "options": {**SCHEDULE, "groups": {"count": 2}, "rounds": 2}}},
    "fedgan": {"recipe": {"name": "fedgo-small", "options": FEDGAN}},
    "fedgo": {
        "recipe": {
            "name": "fedgo-small",
            "options": {**SCHEDULE, "generator": {"steps": 2}, "plan": {"architecture": "disc-mlp", "epochs": 1}},
        }
    },
}


def files(history: History) -> list[dict[str, str]]:
    return [record.digests for record in (history.initial, *history.rounds)]


class Stopped(Exception):
    """Stands for a process that was killed."""


def stop_at(monkeypatch: pytest.MonkeyPatch, where: str, count: int) -> None:
    """Let the engine die at a call of one of its steps, after `count` others."""
    from potstill.simulate import devices, engine

    owner, name = {
        "training": (devices.Device, "train"),
        "delivered": (devices.Device, "_work"),
        "tidying": (engine.Simulation, "_tidy"),
    }[where]
    real: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(count))

    def dies(*args: Any, **options: Any) -> Any:
        last = next(calls, None) is None
        if last and where != "delivered":
            raise Stopped
        result = real(*args, **options)
        if last:
            raise Stopped
        return result

    monkeypatch.setattr(owner, name, dies)


def test_a_round_is_the_weighted_mean_of_its_clients(tmp_path: Path) -> None:
    seen: list[RoundRecord] = []

    def on_round(record: RoundRecord) -> None:
        seen.append(record)
        total = sum(part.num_samples for part in record.participants)
        with TensorFile(record.models["main"]) as file:
            found = {name: file.read(name) for name in file.names}
        expected = {name: np.zeros(value.shape) for name, value in found.items()}
        for part in record.participants:
            with TensorFile(record.client_models[part.client]) as file:
                for name in found:
                    expected[name] += file.read(name).astype(np.float64) * part.num_samples / total
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], atol=1e-6)

    history = Simulation(config(tmp_path)).run(on_round)
    assert [record.index for record in seen] == [1, 2, 3]
    assert all(len(record.participants) == 3 for record in history.rounds)
    assert {part.client for record in history.rounds for part in record.participants} <= set(NAMES)
    assert len(history.accuracies) == 3 and history.accuracies[-1] > 0.5
    assert len(set(map(str, files(history)))) == 4, "every round makes another model"
    assert not history.rounds[0].client_models, "updates are removed after the round"
    for record in history.rounds:
        check_file(record.models["main"])


def test_costs_by_hand(tmp_path: Path) -> None:
    """Each device gets the model and sends its file once a round; a stopped and a moved run tell the same."""
    sizes: list[tuple[int, int]] = []

    def on_round(record: RoundRecord) -> None:
        model = record.models["main"].stat().st_size
        sizes.append((model * len(record.participants), sum(p.stat().st_size for p in record.client_models.values())))

    simulation = Simulation(config(tmp_path, keep_updates=True))
    history = simulation.run(on_round)
    told = report("mine", simulation.config, history, [0.0, 1.1])
    assert told is not None
    assert [(each.files.down, each.files.up) for each in told.rounds] == sizes
    assert told.before.files == Bytes()
    assert [each.wire for each in told.rounds] == [None] * len(sizes)
    (network,) = told.networks
    assert network.training_flops is not None
    samples = sum(part.num_samples for record in history.rounds for part in record.participants)
    assert told.total.flops == Flops(training=samples * simulation.config.local.epochs * network.training_flops)
    assert told.targets[1].round is None
    again = Simulation(config(tmp_path, keep_updates=True))
    assert report("mine", again.config, again.run(), [0.0, 1.1]) == told


def test_costs_of_fedgo_s_stage(tmp_path: Path) -> None:
    simulation = Simulation(config(tmp_path, body_=body(**STATEFUL["fedgan"])))
    history = simulation.run()
    told = report("mine", simulation.config, history, [])
    assert told is not None
    generator, discriminators = history.generator["generator"], history.discriminators.values()
    least = len(discriminators) * generator.stat().st_size
    assert told.before.files.down > least, "the generator's own rounds come on top"
    assert told.before.files.up > sum(path.stat().st_size for path in discriminators)
    assert {each.role for each in told.networks} == {"prototype", "generator", "discriminator"}
    assert told.before.flops is not None
    assert told.before.flops.discriminators > 0
    for each in told.rounds:
        assert each.flops is not None
        assert each.flops.distillation > 0
    history.rounds[0].cost = None
    assert report("mine", simulation.config, history, []) is None, "a run from before anybody counted"


def test_notes_are_those_of_a_services_creation(tmp_path: Path) -> None:
    request = body(recipe={"name": "feddf", "options": SCHEDULE}, rounds={"total": 1})
    history = Simulation(config(tmp_path, body_=request)).run()
    assert [note.path for note in history.notes] == ["recipe.distil.schedule.early_stop"]


def test_updates_are_kept_when_asked_for(tmp_path: Path) -> None:
    history = Simulation(config(tmp_path, keep_updates=True)).run()
    assert [len(record.client_models) for record in history.rounds] == [3, 3, 3]
    again = Simulation(config(tmp_path, keep_updates=True)).run()
    assert again.rounds[0].client_models == history.rounds[0].client_models


def test_only_the_newest_models_are_kept_when_asked_for(tmp_path: Path) -> None:
    history = Simulation(config(tmp_path, keep_models=False)).run()
    assert [record.models["main"].exists() for record in history.rounds] == [False, False, True]
    assert Simulation(config(tmp_path, keep_models=False)).run().accuracies == history.accuracies


@pytest.mark.parametrize(
    ("case", "where", "count"),
    [
        *((case, "training", 4) for case in STATEFUL),
        *((case, "delivered", 4) for case in ("scaffold", "moon", "fedgan")),
        *((case, "tidying", 1) for case in ("fedgkd", "fedsdd")),
    ],
)
def test_a_stopped_run_goes_on_with_the_same_result(
    case: str, where: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = body(**{"recipe": None} | STATEFUL[case])
    whole = Simulation(config(tmp_path / "whole", body_=request)).run()
    with monkeypatch.context() as patch:
        stop_at(patch, where, count)
        with pytest.raises(Stopped):
            Simulation(config(tmp_path / "stopped", body_=request)).run()
    resumed = Simulation(config(tmp_path / "stopped", body_=request)).run()
    assert files(resumed) == files(whole)
    assert resumed.accuracies == whole.accuracies
    assert [r.participants for r in resumed.rounds] == [r.participants for r in whole.rounds]


def test_a_finished_run_is_read_not_run_again(tmp_path: Path) -> None:
    first = Simulation(config(tmp_path)).run()
    called: list[int] = []
    second = Simulation(config(tmp_path)).run(lambda record: called.append(record.index))
    assert called == []
    assert files(first) == files(second)


def test_a_folder_can_be_moved(tmp_path: Path) -> None:
    first = Simulation(config(tmp_path / "here")).run()
    expected = files(first)
    (tmp_path / "here").rename(tmp_path / "there")
    moved = Simulation(config(tmp_path / "there")).run()
    assert files(moved) == expected
    assert all("there" in str(path) for path in moved.models.values())


def test_a_folder_of_another_simulation_is_refused(tmp_path: Path) -> None:
    Simulation(config(tmp_path)).run()
    with pytest.raises(SimulationError, match="other data or settings"):
        Simulation(config(tmp_path, body_=body(seed=6)))
    other = [SimulatedClient(name, samples(7, 12)) for name in NAMES]
    with pytest.raises(SimulationError, match="other data or settings"):
        Simulation(config(tmp_path, clients=other))


def test_results_do_not_depend_on_the_order_of_clients(tmp_path: Path) -> None:
    given = config(tmp_path / "one")
    one = Simulation(given).run()
    other = Simulation(config(tmp_path / "two", clients=tuple(reversed(given.clients)))).run()
    assert files(one) == files(other)


def test_torch_is_left_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(2)
    try:
        Simulation(config(tmp_path, {"name": "feddf", "options": SCHEDULE})).run()
        assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (2, deterministic)
    finally:
        torch.set_num_threads(threads)
    assert torch.rand(1) == expected


def test_first_models_can_be_given(tmp_path: Path) -> None:
    first = Simulation(config(tmp_path / "one")).run()
    given = {"main": first.models["main"]}
    second = Simulation(config(tmp_path / "two", initial_models=given)).run()
    assert digest_of(second.initial.models["main"]) == digest_of(first.models["main"])


def test_a_target_accuracy_ends_the_run(tmp_path: Path) -> None:
    request = body(rounds={"total": 50, "target_accuracy": 0.3})
    history = Simulation(config(tmp_path, body_=request)).run()
    assert len(history.rounds) < 50
    assert history.accuracies[-1] >= 0.3


def test_groups_are_models_of_their_own(tmp_path: Path) -> None:
    request = body(**STATEFUL["fedsdd"])
    history = Simulation(config(tmp_path, body_=request)).run()
    assert set(history.models) == {"main", "main~1"}
    trained = {part.prototype for record in history.rounds for part in record.participants}
    assert trained == {"main", "main~1"}


def test_fedgo_leaves_its_stage(tmp_path: Path) -> None:
    history = Simulation(config(tmp_path, body_=body(**STATEFUL["fedgo"]))).run()
    assert set(history.discriminators) == set(history.scores) == set(NAMES)
    assert {"generator", "discriminator"} <= set(history.generator)
    with TensorFile(history.scores["east"]) as file:
        assert file.read("unlabeled").shape == (30,) and file.read("test").shape == (40,)
    assert history.rounds[-1].ensemble_accuracy is not None


def test_a_federated_generator_needs_no_server_data(tmp_path: Path) -> None:
    given = config(tmp_path, body_=body(**STATEFUL["fedgan"]), server={"test": samples(91, 40)})
    history = Simulation(given).run()
    with TensorFile(history.scores["east"]) as file:
        assert file.read("unlabeled").shape == (20,)
    again = Simulation(given).run()  # from the folder
    assert again.models == history.models
    assert not list((given.folder / "gan").glob("*/updates"))


def test_simulated_devices_count_their_discriminators_and_generators(tmp_path: Path) -> None:
    """12 samples of the first device. Generator: 2 rounds of 1 epoch of 2 steps; discriminator: 1; then the rounds."""
    pytest.importorskip("opacus", reason="the extra 'privacy' is not installed")
    asked = body(
        recipe={"name": "fedgo-small", "options": FEDGAN}, local=LOCAL | {"privacy": {"noise_multiplier": 2.0}}
    )
    history = Simulation(config(tmp_path, body_=asked, server={"test": samples(91, 40)})).run()
    (file,) = (tmp_path / "devices" / "0000").rglob("privacy.json")
    ledger = [(entry["sample_rate"], entry["steps"]) for entry in json.loads(file.read_text())["spent"]]
    took_part = [record.index for record in history.rounds if "east" in {p.client for p in record.participants}]
    assert ledger == [(8 / 12, 2), (8 / 12, 2), (1.0, 1)] + [(8 / 12, 2)] * len(took_part)
    last = next(p for p in history.rounds[took_part[-1] - 1].participants if p.client == "east")
    steps = [(2.0, rate, count) for rate, count in ledger]
    assert last.epsilon == pytest.approx(accountant.epsilon(steps, 1e-5), rel=1e-3)


def test_discriminators_that_no_weighting_reads_are_not_trained(tmp_path: Path) -> None:
    options = FEDGAN | {"weigh": {"kind": "uniform"}}
    asked = body(recipe={"name": "fedgo-small", "options": options})
    history = Simulation(config(tmp_path, body_=asked, server={"test": samples(91, 40)})).run()
    assert history.discriminators == history.scores == {}
    assert set(history.generator) == {"generator", "samples"}
    assert len(history.rounds) == 3 and history.rounds[-1].ensemble_accuracy is not None
    assert not (tmp_path / "discriminators").exists() and not (tmp_path / "score").exists()


def test_a_job_that_fails_says_why(tmp_path: Path) -> None:
    bad = samples(90, 30)[0]
    bad[:] = 1.0  # a generator cannot scale data without a range
    given = config(tmp_path, body_=body(**STATEFUL["fedgo"]), server={"unlabeled": bad, "test": samples(91, 40)})
    with pytest.raises(JobFailure) as failure:
        Simulation(given).run()
    assert failure.value.code == "bad_option"


def test_a_job_that_takes_longer_than_the_plan_allows_fails_as_in_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = iter(range(0, 10**6, 40))
    monkeypatch.setattr("potstill.simulate.jobs.time.monotonic", lambda: float(next(steady)))
    rounds = {"total": 1, "clients_per_round": 3, "min_updates": 3, "job_seconds": 100}
    with pytest.raises(JobFailure, match="rounds.job_seconds, 100 s") as failure:
        Simulation(config(tmp_path, body_=body("feddf", rounds=rounds))).run()
    assert failure.value.code == "out_of_time"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"clients": []}, "there is none"),
        ({"clients": [SimulatedClient("a", samples(0, 5)), SimulatedClient("a", samples(1, 5))]}, "appears twice"),
        ({"clients": [SimulatedClient("a", samples(0, 5))]}, "3 clients are needed"),
        ({"server": {"tset": samples(0, 5)}}, "'tset' is not one of"),
        ({"server": {"test": samples(0, 5)[0]}}, "test needs labels"),
        ({"recipe": "feddf", "server": {}}, "unlabel"),
        ({"recipe": "nope"}, "unknown recipe"),
        ({"recipe": "scaffold"}, "scaffold"),
    ],
)
def test_the_impossible_is_refused_by_field(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match=message):
        Simulation(config(tmp_path, **more))


def test_an_unknown_prototype_is_refused(tmp_path: Path) -> None:
    clients = [SimulatedClient(name, samples(0, 9), prototype="other") for name in NAMES]
    with pytest.raises(SimulationError, match="no prototype 'other'"):
        Simulation(config(tmp_path, clients=clients))


def test_a_damaged_note_of_a_job_is_not_half_read(tmp_path: Path) -> None:
    """Results are noted in one step: what a stopped process left beside them is no result."""
    Simulation(config(tmp_path)).run()
    note = tmp_path / "rounds" / "00003" / "result.json"
    expected = json.loads(note.read_text())["result"]["metrics"]["accuracy"]
    note.rename(note.with_suffix(".part"))
    assert Simulation(config(tmp_path)).run().accuracies[-1] == expected


def test_a_prototypes_control_variate_is_the_mean_of_its_own_clients(tmp_path: Path) -> None:
    """c = (1/N) sum c_i after every round (SCAFFOLD), with the N of those that train the model."""
    network = {"architecture": "mlp", "options": {"hidden": [5]}}
    asked = body(
        "scaffold",
        local={"objective": {"kind": "scaffold"}, **LOCAL},
        prototypes=[{"name": name, **network} for name in ("a", "b")],
        rounds={"total": 2},
    )
    owners = dict(zip(NAMES, ("a", "b", "b", "b"), strict=True))
    clients = [
        SimulatedClient(name, samples(number, 12 + number), prototype=owners[name]) for number, name in enumerate(NAMES)
    ]
    history = Simulation(config(tmp_path, body_=asked, clients=clients)).run()
    memories = {}
    for number, name in enumerate(NAMES):
        (path,) = (tmp_path / "devices" / f"{number:04}").rglob("memory.next.safetensors")
        with TensorFile(path) as file:
            memories[name] = {key: file.read(key).astype(float) for key in file.names}
    for prototype in ("a", "b"):
        own = [memories[name] for name in NAMES if owners[name] == prototype]
        with TensorFile(history.rounds[-1].state[f"control.{prototype}"]) as file:
            for key in file.names:
                expected = sum(memory[key] for memory in own) / len(own)
                np.testing.assert_allclose(file.read(key), expected, rtol=1e-4, atol=1e-6)


def test_labels_of_the_servers_set_are_kept_where_students_learn_them_and_asked_for_there(tmp_path: Path) -> None:
    learns = {"name": "feddf", "options": {"data": {"kind": "labeled"}, "schedule": {"steps": 2}, "early_stop": None}}
    for recipe, there in ((learns, True), ("feddf", False)):
        home = tmp_path / str(there)
        Simulation(config(home, recipe, server={"unlabeled": samples(90, 30)}))
        with TensorFile(home / "data" / "unlabeled.safetensors") as file:
            assert ("labels" in file.names) == there
    with pytest.raises(SimulationError, match="server: unlabeled needs labels; give a pair"):
        Simulation(config(tmp_path / "bare", learns))
