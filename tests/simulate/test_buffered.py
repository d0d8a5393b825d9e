"""Simulated rounds that do not wait: like synchronous ones where all is fresh, resumable, and the service's bytes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from client_sdk import train_and_push
from client_sdk.client import Client
from contract.wire.federations import FederationCreate
from potstill.simulate.config import SimulatedClient, SimulationConfig
from potstill.simulate.engine import Simulation
from potstill.simulate.history import History, digest_of
from potstill.simulate.speeds import Speeds
from tools.deployment import Deployment, add_server_data, federation_request, images, wait_for

from .small import NAMES, body, config

BUFFERED: dict[str, Any] = {"mode": "buffered", "total": 6, "buffer": 2, "max_staleness": 3, "per_client": 2}
SCHEDULE = {"schedule": {"epochs": 1, "batch_size": 16}}
FEDGO = {**SCHEDULE, "generator": {"steps": 2}, "plan": {"architecture": "disc-mlp", "epochs": 1}}
RECIPES: dict[str, Any] = {
    "fedavg": {"name": "fedavg"},
    "fedavgm": {"name": "fedavgm"},
    "feddf": {"name": "feddf", "options": SCHEDULE},
    "fedgo": {"name": "fedgo-small", "options": FEDGO},
}


def digests(history: History) -> list[dict[str, str]]:
    return [record.digests for record in (history.initial, *history.rounds)]


def run(folder: Path, recipe: Any, **plan: Any) -> History:
    return Simulation(config(folder, body_=body(recipe, rounds=plan), speeds=Speeds(dropout=0.1))).run()


@pytest.mark.parametrize("name", RECIPES)
def test_a_buffer_of_everybody_is_a_synchronous_round(name: str, tmp_path: Path) -> None:
    waits = Simulation(config(tmp_path / "waits", body_=body(RECIPES[name], rounds={"total": 2, "min_updates": 4})))
    plan = {"total": 2, "mode": "buffered", "buffer": len(NAMES)}
    goes = Simulation(config(tmp_path / "goes", body_=body(RECIPES[name], rounds=plan)))
    assert digests(waits.run()) == digests(goes.run())


@pytest.mark.parametrize("name", RECIPES)
def test_updates_of_several_ages_are_fused_and_the_clock_goes_on(name: str, tmp_path: Path) -> None:
    history = run(tmp_path, RECIPES[name], **BUFFERED)
    assert history.ending is not None
    assert (history.ending.state, [each.outcome for each in history.rounds]) == ("finished", ["published"] * 6)
    ages = [part.staleness for record in history.rounds for part in record.participants]
    assert max(ages) > 0 == min(ages)
    clocks = [record.clock for record in history.rounds]
    assert all(clock is not None for clock in clocks)
    assert clocks == sorted(clocks, key=lambda clock: clock or 0.0)
    for record in history.rounds:
        told = record.metrics["staleness"]
        assert {part.called: part.staleness for part in record.participants} == {
            client: each["versions"] for client, each in told.items()
        }


@pytest.mark.parametrize("count", [1, 5, 9])
def test_a_simulation_that_was_stopped_goes_on_with_the_same_bytes(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from potstill.simulate import devices

    whole = run(tmp_path / "whole", RECIPES["feddf"], **BUFFERED)
    real, calls = devices.Device.train, iter(range(count))

    def dies(*arguments: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(devices.Device, "train", dies)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parts", RECIPES["feddf"], **BUFFERED)
    again = run(tmp_path / "parts", RECIPES["feddf"], **BUFFERED)
    assert digests(again) == digests(whole)
    assert [each.clock for each in again.rounds] == [each.clock for each in whole.rounds]


# ---------------------------------------------------------------------------------------------------- as the service
class Turns:
    """Lets devices deliver one after another, in an order that is said."""

    def __init__(self) -> None:
        self.held = {name: threading.Event() for name in NAMES}
        self.free = {name: threading.Event() for name in NAMES}
        self.next = {name: threading.Event() for name in NAMES}

    @contextmanager
    def kept(self) -> Iterator[None]:
        deliver = Client.deliver

        def waits(client: Client, kind: Any, url: str, file: Any, **options: Any) -> Any:
            name = next(name for name in NAMES if name in Path(file).parts)
            if kind == "update":
                self.held[name].set()
                assert self.free[name].wait(120)
                self.held[name].clear()
                self.free[name].clear()
            receipt = deliver(client, kind, url, file, **options)
            if kind == "update":  # a simulated service takes no time to make a model, and devices begin from it
                assert self.next[name].wait(120)
                self.next[name].clear()
            return receipt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Client, "deliver", waits)
            yield


def data_of(number: int) -> Any:
    return images(number, 40 + 10 * number, classes=[number, (number + 1) % 4])


def play(deployment: Deployment, request: FederationCreate, history: History, folder: Path) -> Any:
    """Have the service's devices begin and deliver as the simulated ones did; return the federation."""
    operator, turns = deployment.operator, Turns()
    created = operator.create_federation(request)
    operator.start_federation(created.id)
    errors = list[Exception]()

    def device(number: int, name: str) -> None:
        try:
            train_and_push(
                deployment.url, data_of(number), federation=created.id, join_token=created.join_token, name=name,
                state_dir=folder / name, device="cpu", progress=False,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - it is reported in the main thread
            errors.append(error)

    def trained(name: str) -> bool:
        return bool(errors) or turns.held[name].is_set()

    def left(name: str) -> bool:
        return not turns.free[name].is_set()

    def published(index: int) -> bool:
        return any(each.index == index and each.state == "published" for each in operator.rounds(created.id).items)

    threads = [threading.Thread(target=device, args=pair, daemon=True) for pair in enumerate(NAMES)]
    with turns.kept():
        for thread in threads:
            thread.start()
        for record in history.rounds:
            for part in record.participants:
                wait_for(partial(trained, part.client), 90, f"{part.called} trains")
                assert not errors, errors
                turns.free[part.client].set()
                wait_for(partial(left, part.client), 30, "it goes on")
            wait_for(partial(published, record.index), 90, f"round {record.index} is published")
            for part in record.participants:
                turns.next[part.client].set()
        for name in NAMES:
            turns.free[name].set()
            turns.next[name].set()
        for thread in threads:
            thread.join(timeout=90)
    assert not errors, errors
    return operator.federation(created.id)


SERVED: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "fedgo": {
        "name": "fedgo-small",
        "options": {"schedule": {"epochs": 2, "batch_size": 32}, "generator": {"steps": 15},
                    "plan": {"epochs": 2, "batch_size": 16}, "link": "sigmoid"},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    from tools.deployment import running

    made = Deployment(tmp_path_factory.mktemp("deployment") / "home")
    with running(made):
        add_server_data(made)
        yield made


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", SERVED)
def test_every_published_file_is_the_services(deployment: Deployment, name: str, tmp_path: Path) -> None:
    """Devices that deliver in the simulation's order, with a model of every buffer before the next begins."""
    plan = {"mode": "buffered", "total": 4, "buffer": 2, "max_staleness": 5, "min_clients": len(NAMES)}
    request = FederationCreate.model_validate(federation_request(name, SERVED[name], rounds=plan))
    simulated = SimulationConfig(
        federation=request,
        clients=[SimulatedClient(client, data_of(number)) for number, client in enumerate(NAMES)],
        server={"unlabeled": deployment.home / "server.safetensors", "test": deployment.home / "test.safetensors"},
        folder=tmp_path / "simulated",
        threads=1,
        speeds=Speeds(spread=10.0),
    )
    history = Simulation(simulated).run()
    ages = [part.staleness for record in history.rounds for part in record.participants]
    assert max(ages) > 0
    federation = play(deployment, request, history, tmp_path / "devices")
    models = deployment.operator.models(federation=federation.id, limit=100).items
    served = {m.round: m.digest for m in models if m.role in ("initial", "global")}
    assert served == {each.index: digest_of(each.models["main"]) for each in (history.initial, *history.rounds)}
    rounds = [deployment.operator.round(each.id) for each in deployment.operator.rounds(federation.id).items]
    told = {(each.index, part.label): part.staleness for each in rounds for part in each.participants if part.digest}
    assert told == {
        (record.index, part.called): part.staleness for record in history.rounds for part in record.participants
    }
