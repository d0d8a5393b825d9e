"""The claim of the simulator: its model files are the service's, byte for byte, for the same seed, names and data."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk import train_and_push
from client_sdk.client import Client
from client_sdk.errors import FederationEnded
from contract.wire.changes import PlanChange
from contract.wire.federations import Federation, FederationCreate
from contract.wire.report import FederationReport, RoundCost
from potstill.simulate.config import SimulatedClient, SimulationConfig
from potstill.simulate.costs import report
from potstill.simulate.engine import Simulation
from potstill.simulate.history import History, digest_of
from tools.deployment import CLASSES, Deployment, add_server_data, federation_request, images, running, wait_for

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = ("east", "north", "south", "west")
SCHEDULE = {"epochs": 2, "batch_size": 32}
SGD = {"optimizer": {"kind": "sgd", "lr": 0.05}, "epochs": 1, "batch_size": 16}
FEDGO = {
    "schedule": SCHEDULE,
    "generator": {"steps": 15},
    "plan": {"epochs": 2, "batch_size": 16},
    "link": "sigmoid",
}
REFLUX = {name: FEDGO[name] for name in ("schedule", "generator", "plan")}
SKEWED = {"epochs": 1, "batch_size": 16}  # of the preset's objective
THRICE = ("finished", ["published"] * 3)
FEDGAN = {
    "schedule": SCHEDULE,
    "data": {"kind": "generated", "count": 60},
    "generator": {"kind": "fedgan", "rounds": 2, "epochs": 1, "batch_size": 16},
    "plan": {"epochs": 1, "batch_size": 16},
}
FRESH = FEDGO | {"data": {"kind": "generated", "count": 40, "fresh": True}}
MLP = {"architecture": "mlp", "options": {"hidden": [8, 8]}}
ROUNDS = {"total": 2, "clients_per_round": 3, "min_clients": len(NAMES), "min_updates": 3}
ONE = ROUNDS | {"total": 5, "clients_per_round": 1, "min_updates": 1}
HALF = ROUNDS | {"clients_per_round": 0.5}
ADAM = {"optimizer": {"kind": "adam", "lr": 0.01}, "epochs": 3, "batch_size": 16}
VARIED = {"epochs": 6, "partial_work": {"least": 2}, "optimizer": {"kind": "adam", "lr": 0.01}}
FEDDF = {"name": "feddf", "options": {"schedule": SCHEDULE}}


def _gate(action: str, max_drop: float = 0.0) -> dict[str, Any]:
    return ONE | {"gate": {"metric": "test_accuracy", "max_drop": max_drop, "action": action}}


@dataclass(frozen=True)
class Case:
    """One federation.

    Attributes:
        recipe, more: of the request.
        rounds: the plan.
        prototypes: names of those that devices train, in turn.
        extreme: what the last device's inputs are multiplied by.
        mislabelled: the last device has other labels than it should.
        ending: how the federation ends, and the states of its rounds.
        excluded: who is left out of each round.
        rolled_back: the round whose model came back, by the round that turned back.
        changes: what an operator changes of the plan while the round before collects.
    """

    recipe: dict[str, Any]
    more: dict[str, Any] = field(default_factory=dict)
    rounds: dict[str, Any] = field(default_factory=lambda: ROUNDS)
    prototypes: tuple[str, ...] = ("main",)
    extreme: float = 1.0
    mislabelled: bool = False
    ending: tuple[str, list[str]] = ("finished", ["published", "published"])
    excluded: list[list[str]] | None = None
    rolled_back: dict[int, int] = field(default_factory=dict)
    changes: dict[int, PlanChange] = field(default_factory=dict)


CASES = {
    "fedavg": Case({"name": "fedavg"}),
    "feddf": Case(FEDDF),
    "fedgo": Case({"name": "fedgo-small", "options": FEDGO}),
    "reflux": Case({"name": "reflux", "options": REFLUX}, {"local": SKEWED}, ONE | {"total": 3}, ending=THRICE),
    "reflux-anchor": Case({"name": "reflux-anchor", "options": REFLUX}, {"local": SKEWED}),
    "fedgan": Case({"name": "fedgo-small", "options": FEDGAN}, {"datasets": {"test": "test"}}),
    "fresh": Case({"name": "fedgo-small", "options": FRESH}),
    "dafkd": Case(
        {"name": "dafkd", "options": {"schedule": SCHEDULE | {"optimizer": {"kind": "adam", "lr": 1e-3}}, "count": 40}},
        {"local": {"objective": {"kind": "dafkd"}, **SGD}, "datasets": {"test": "test"}},
    ),
    # state on the server and on the devices, and what is sent beside the model
    "scaffold": Case({"name": "scaffold"}, {"local": {"objective": {"kind": "scaffold"}, **SGD}}),
    "fedgkd": Case({"name": "fedgkd"}, {"local": {"objective": {"kind": "fedgkd"}, **SGD}}),
    "ds-fl": Case(
        {"name": "ds-fl", "options": {"schedule": SCHEDULE}},
        {"local": {"objective": {"kind": "ds_fl", "imitation_epochs": 2}, **SGD}},
    ),
    # several models of one prototype, of which some run ahead
    "fedsdd": Case({"name": "fedsdd", "options": {"schedule": SCHEDULE, "groups": {"count": 2}}}, {"local": SGD}),
    # updates that are masked, in one group and in several
    "secure": Case(
        {"name": "fedadam"}, {"local": SGD}, ROUNDS | {"clients_per_round": 4, "secure": {"phase_seconds": 5}}
    ),
    "secure-groups": Case(
        {"name": "fedsdd", "options": {"schedule": SCHEDULE, "groups": {"count": 2}}},
        {"local": SGD | {"objective": {"kind": "fedprox"}}},
        ROUNDS | {"clients_per_round": 4, "secure": {"min_group": 2, "clip": 4.0}},
    ),
    "prototypes": Case(
        FEDDF,
        {
            "prototypes": [{"name": "large", "architecture": "cnn-digits"}, {"name": "small", **MLP, "local": VARIED}],
            "local": SGD | {"rate_over_rounds": {"kind": "steps", "at": [0.5]}},
        },
        prototypes=("large", "small"),
    ),
    # devices train a part of the network, of which another part stays with each
    "parted": Case(FEDDF, {"prototypes": [{"name": "main", **MLP, "trains": ["3.*", "5.*"]}], "local": SGD}),
    "kept": Case(
        {"name": "scaffold"},
        {
            "prototypes": [{"name": "main", **MLP, "trains": ["3.*"], "keeps": ["5.*"]}],
            "local": {"objective": {"kind": "scaffold"}, **SGD},
            "datasets": {},
        },
    ),
    "fedma": Case(
        {"name": "fedma"},
        {"prototypes": [{"name": "main", **MLP}]},
        ROUNDS | {"total": 4},
        ending=("finished", ["published"] * 4),
    ),
    # an operator changes the plan: from the second round on everybody trains otherwise, and there are three
    "changed": Case(
        FEDDF,
        {"local": SGD | {"rate_over_rounds": {"kind": "steps", "at": [0.5]}}},
        changes={
            2: PlanChange.model_validate(
                {
                    "local": {"epochs": 2, "batch_size": 8},
                    "rounds": {"total": 3, "clients_per_round": 4, "min_updates": 4},
                    "schedule": {"epochs": 1, "lr": 0.01},
                }
            )
        },
        ending=("finished", ["published"] * 3),
    ),
    # rounds that publish nothing, or less
    "rejects": Case(
        {"name": "fedavgm"},
        {"local": SGD | {"optimizer": {"kind": "sgd", "lr": 0.1}}, "seed": 2},
        _gate("reject", 0.2) | {"clients_per_round": 2, "min_updates": 2},
        mislabelled=True,
        ending=("finished", ["published", "published", "skipped", "published", "published"]),
    ),
    "rolls-back": Case(
        {"name": "fedavg"},
        {"local": ADAM | {"epochs": 1}, "seed": 34},
        _gate("rollback", 0.1),
        ending=("finished", ["published", "published", "published", "skipped", "published"]),
        rolled_back={4: 2},
    ),
    "pauses": Case(
        {"name": "fedavg"}, {"local": ADAM}, _gate("pause"), ending=("paused", ["published", "published", "skipped"])
    ),
    "target": Case(
        {"name": "fedavg"}, {"local": ADAM}, ONE | {"target_accuracy": 0.7}, ending=("finished", ["published"] * 2)
    ),
    "too-few": Case({"name": "fedavg"}, {}, HALF | {"max_skipped": 2, "total": 5}, ending=("paused", ["skipped"] * 2)),
    "fails": Case({"name": "fedavg"}, {}, HALF | {"on_deadline": "fail"}, ending=("paused", ["failed"])),
    "empty": Case({"name": "fedavg"}, {}, HALF, ending=("failed", ["skipped"] * 2)),
    "bad-teacher": Case(
        FEDDF,
        {
            "prototypes": [{"name": "main", "architecture": "mlp", "options": {"hidden": [16]}}],
            "local": {"optimizer": {"kind": "sgd", "lr": 0.2}, "epochs": 1, "batch_size": 128},
        },
        ROUNDS | {"min_updates": 2, "on_bad_teacher": "exclude"},
        extreme=1e22,
        excluded=[["west"], ["west"]],
    ),
}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("deployment") / "home")
    with running(made):
        add_server_data(made)
        yield made


def data_of(case: Case, number: int) -> tuple[Any, Any]:
    inputs, labels = images(number, 40 + 10 * number, classes=[number, (number + 1) % 4])
    if number < len(NAMES) - 1:
        return inputs, labels
    return inputs * np.float32(case.extreme), (labels + 2) % CLASSES if case.mislabelled else labels


def prototype_of(case: Case, number: int) -> str:
    return case.prototypes[number % len(case.prototypes)]


def request_for(name: str) -> FederationCreate:
    case = CASES[name]
    return FederationCreate.model_validate(federation_request(name, case.recipe, rounds=case.rounds, **case.more))


@contextmanager
def held_back() -> Iterator[None]:
    """Let no device deliver until the block ends: a round that has opened collects on."""
    free, deliver = threading.Event(), Client.deliver

    def waits(*arguments: Any, **options: Any) -> Any:
        assert free.wait(60)
        return deliver(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "deliver", waits)
        try:
            yield
        finally:
            free.set()


def run_service(deployment: Deployment, name: str, folder: Path) -> Federation:
    """Run a federation with a thread a device; return it as it ended, or waits for an operator."""
    case = CASES[name]
    created = deployment.operator.create_federation(request_for(name))
    deployment.operator.start_federation(created.id)
    errors: list[Exception] = []

    def device(number: int, name: str) -> None:
        counts = np.bincount(data_of(case, number)[1], minlength=CLASSES).tolist()
        try:
            train_and_push(
                deployment.url, data_of(case, number), federation=created.id, join_token=created.join_token, name=name,
                state_dir=folder / name, device="cpu", progress=False, prototype=prototype_of(case, number),
                label_counts=counts if case.recipe["name"] == "fedma" else None,
            )  # fmt: skip
        except FederationEnded:
            pass
        except Exception as error:  # noqa: BLE001 - it is reported in the main thread
            errors.append(error)

    def opened(index: int) -> bool:
        return any(each.index == index for each in deployment.operator.rounds(created.id).items)

    threads = [threading.Thread(target=device, args=pair, daemon=True) for pair in enumerate(NAMES)]
    with held_back() if case.changes else nullcontext():
        for thread in threads:
            thread.start()
        for index, change in case.changes.items():
            wait_for(partial(opened, index - 1), 60, "the round opens")
            deployment.operator.change_plan(created.id, change)

    def over() -> bool:
        return bool(errors) or deployment.operator.federation(created.id).state in ("finished", "failed", "paused")

    wait_for(over, 200, "the federation goes on")
    assert not errors, errors
    ended = deployment.operator.federation(created.id)
    if ended.state == "paused":
        deployment.operator.cancel_federation(created.id)  # or its devices would wait
    for thread in threads:
        thread.join(timeout=60)
    assert not errors, errors
    return ended


def simulation(deployment: Deployment, name: str, folder: Path) -> Simulation:
    case, has_data = CASES[name], CASES[name].more.get("datasets") != {}
    config = SimulationConfig(
        federation=request_for(name),
        clients=[
            SimulatedClient(client, data_of(case, number), prototype_of(case, number))
            for number, client in enumerate(NAMES)
        ],
        server={role: deployment.home / f"{file}.safetensors" for role, file in _SETS.items()} if has_data else {},
        folder=folder,
        threads=1,
        changes=case.changes,
    )
    return Simulation(config)


_SETS = {"unlabeled": "server", "test": "test"}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", CASES)
def test_every_published_file_is_the_services(deployment: Deployment, name: str, tmp_path: Path) -> None:
    case = CASES[name]
    federation = run_service(deployment, name, tmp_path / "devices")
    simulated = simulation(deployment, name, tmp_path / "simulated")
    assert simulated.config.runs_ahead == (name == "fedsdd")
    history = simulated.run()
    assert history.ending is not None
    models = deployment.operator.models(federation=federation.id, limit=100).items
    served = {(m.prototype, m.round): m.digest for m in models if m.role in ("initial", "global")}
    assert served == {
        (name, record.index): digest_of(record.models[name])
        for record in (history.initial, *history.rounds)
        for name in record.published
    }
    assert {name: ref.digest for name, ref in federation.models.items()} == {
        name: digest_of(path) for name, path in history.models.items()
    }
    rounds = sorted(deployment.operator.rounds(federation.id).items, key=lambda each: each.index)
    assert (federation.state, [each.state for each in rounds]) == case.ending, deployment.log("worker")[-3000:]
    assert (history.ending.state, [record.outcome for record in history.rounds]) == case.ending
    assert history.ending.error == federation.error
    assert [each.reason for each in rounds] == [record.reason for record in history.rounds]
    shown = [(record.index, record.accuracy) for record in history.rounds if record.accuracy is not None]
    assert federation.accuracies == shown
    asked = [deployment.operator.round(each.id) for each in rounds]
    assert [{p.name: p.excluded for p in each.participants} for each in asked] == [
        {part.client: part.excluded for part in record.participants} for record in history.rounds
    ]
    if case.excluded is not None:
        left_out = [[part.client for part in each.participants if part.excluded] for each in history.rounds]
        assert left_out == case.excluded
    gates = {record.index: record.metrics.get("gate", {}) for record in history.rounds}
    back = {index: gate["rolled_back"] for index, gate in gates.items() if "rolled_back" in gate}
    assert back == {index: {"main": best} for index, best in case.rolled_back.items()}
    if name in ("fedgo", "fedgan"):
        others = {m.role: m.digest for m in models if m.role in ("generator", "discriminator", "samples")}
        assert others == {name: digest_of(path) for name, path in history.generator.items()}
    _check_costs(deployment.operator.report(federation.id, targets=[0.5]), simulated, history)


def _check_costs(served: FederationReport, simulated: Simulation, history: History) -> None:
    """The same numbers where they mean the same: metadata of files name models otherwise, and the service has masks.

    A simulation measures no wire, and other seconds.
    """
    told = report("simulated", simulated.config, history, [0.5])
    assert told is not None
    assert (told.networks, told.learnt) == (served.networks, served.learnt)
    assert told.before.files.down == served.before.files.down
    assert (told.before.flops, told.total.flops) == (served.before.flops, served.total.flops)
    assert [_same(each) for each in told.rounds] == [_same(each) for each in served.rounds]
    assert [each.round for each in told.targets] == [each.round for each in served.targets]
    assert served.total.wire is not None


def _same(cost: RoundCost) -> tuple[Any, ...]:
    return cost.round, cost.state, cost.accuracy, cost.devices, cost.answered, cost.files.down, cost.flops
