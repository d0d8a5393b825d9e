"""Methods that keep something between rounds, through the whole device: two phases, crashes, what travels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from client_sdk import errors
from client_sdk.memory import Memory
from client_sdk.reports import RunReport
from contract.layout import layout
from contract.local import LocalPlan
from contract.nn import codec
from contract.tensors import TensorFile, parse_header
from contract.wire.problems import KINDS, TYPE_PREFIX

Run = Callable[..., RunReport]
PLANS: dict[str, dict[str, Any]] = {
    "scaffold": {"objective": {"kind": "scaffold"}},
    "scaffold-1": {"objective": {"kind": "scaffold", "option": 1}},
    "fedgkd": {"objective": {"kind": "fedgkd"}},
    "moon": {"objective": {"kind": "moon"}},
    "feduv": {"objective": {"kind": "feduv"}},
    "fedtgp": {"objective": {"kind": "fedtgp"}},
    "prior_adjusted_ce": {"objective": {"kind": "prior_adjusted_ce"}},
    "binary": {"precision": {"kind": "binary"}},
}


def crash(request: httpx.Request) -> httpx.Response:
    raise KeyboardInterrupt


def crash_after(service: Any) -> Callable[[httpx.Request], httpx.Response]:
    """Let the service take the update; the device hears nothing of it."""

    def answer(request: httpx.Request) -> httpx.Response:
        service._update(request)
        raise KeyboardInterrupt

    return answer


def refuse(service: Any) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        service.round += 1
        body = {"type": TYPE_PREFIX + "round-closed", "title": "T", "status": 409, "detail": "too late"}
        return httpx.Response(KINDS["round-closed"][0], json=body)

    return answer


@pytest.fixture
def scaffold(service: Any) -> Any:
    service.plan |= PLANS["scaffold"]
    service.rounds = 4
    return service


def tensors(content: bytes | Path, folder: Path, prefix: str) -> dict[str, np.ndarray]:
    """Return a file's tensors whose names start with `prefix`."""
    path = content if isinstance(content, Path) else folder / "read.safetensors"
    if isinstance(content, bytes):
        path.write_bytes(content)
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names if name.startswith(prefix)}


def summed(*states: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.sum([state[name] for state in states], axis=0) for name in states[0]}


def same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> bool:
    return one.keys() == two.keys() and all(np.allclose(one[name], two[name], atol=1e-5) for name in one)


# What travels


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_an_update_is_the_layout_of_its_plan_and_the_same_bytes_for_the_same_device(
    service: Any, take_part: Run, tmp_path: Path, plan: dict[str, Any]
) -> None:
    service.options, service.plan = {"hidden": [8, 8]}, service.plan | plan
    service.add_model("mdl_0", "mlp", service.options)
    take_part()
    first, service.updates = service.updates, []
    base = parse_header(service.models["mdl_0"], len(service.models["mdl_0"]))
    wanted = layout(LocalPlan.model_validate(service.plan), base, 2)
    for update in first:
        header = parse_header(update, len(update))
        assert [(n, i.dtype, i.shape) for n, i in header.tensors.items()] == [(n, *w) for n, w in wanted.items()]
        assert "control_reset" not in header.metadata
    service.round, service.current = 1, "mdl_0"
    torch.manual_seed(99)
    take_part(state_dir=tmp_path / "other")
    assert service.updates == first and len(first) == 2


def test_extras_are_fetched_once_per_digest_and_forgotten_with_their_round(
    service: Any, take_part: Run, tmp_path: Path
) -> None:
    service.plan |= {"objective": {"kind": "fedgkd", "gamma": 1.0}}
    take_part(rounds=1)
    plain, service.updates = service.updates, []
    service.round, service.current = 1, "mdl_0"
    far = {name: torch.from_numpy(value) + 1 for name, value in tensors(service.models["mdl_0"], tmp_path, "").items()}
    codec.save_state(far, tmp_path / "far.safetensors")
    service.models["mdl_far"], service.extras = (tmp_path / "far.safetensors").read_bytes(), {"teacher": "mdl_far"}
    report = take_part(state_dir=tmp_path / "b")
    assert service.updates[0] != plain[0]
    assert len(service.sent("GET", "/v1/models/mdl_far/weights")) == 1
    assert list((tmp_path / "b" / "models").iterdir()) == [report.model_path]


# Two phases


def test_the_state_follows_the_acknowledged_rounds(scaffold: Any, take_part: Run, tmp_path: Path) -> None:
    """c_i starts at 0, so after every round it is the sum of all dc that were sent."""
    memory, sent = Memory(tmp_path / "device"), []
    for round_index in (1, 2, 3):
        take_part(rounds=1)
        sent.append(tensors(scaffold.updates[-1], tmp_path, "control."))
        proposal = memory.proposal()
        assert proposal is not None and proposal.acknowledged and proposal.round == f"rnd_{round_index}"
        assert same(tensors(tmp_path / "device" / "memory.next.safetensors", tmp_path, ""), summed(*sent))
        if round_index > 1:  # the state before is still there, until another round begins
            assert same(tensors(tmp_path / "device" / "memory.safetensors", tmp_path, ""), summed(*sent[:-1]))


def test_a_round_that_is_trained_once_more_after_its_update_counted_starts_from_the_old_state(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    for number, round_id in enumerate(("rnd_1", "rnd_2")):
        memory.begin(round_id)
        memory.propose(round_id, {"x": torch.tensor([float(number)])})
        memory.acknowledge(round_id)
    assert memory.begin("rnd_2")["x"].tolist() == [0.0]
    memory.propose("rnd_2", {"x": torch.tensor([7.0])})
    memory.acknowledge("rnd_1")  # of another round: nothing is acknowledged
    assert memory.begin("rnd_3")["x"].tolist() == [0.0]


def test_a_kill_between_training_and_delivery_sends_the_same_bytes_and_then_commits(
    scaffold: Any, take_part: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaffold.fault("PUT", ".*/update", crash)
    with pytest.raises(KeyboardInterrupt):
        take_part()
    kept = (tmp_path / "device" / "pending.safetensors").read_bytes()
    proposal = Memory(tmp_path / "device").proposal()
    assert proposal is not None and not proposal.acknowledged
    with monkeypatch.context() as patch:
        patch.setattr("client_sdk.rounds.train_local", None)
        take_part(rounds=1)
    assert scaffold.updates == [kept]
    take_part(rounds=1)
    assert same(tensors(tmp_path / "device" / "memory.safetensors", tmp_path, ""), tensors(kept, tmp_path, "control."))


def test_a_kill_between_state_and_update_trains_again_from_the_old_state(
    scaffold: Any, take_part: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_part(rounds=2)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("client_sdk.state.StateFolder.submit", lambda *_: crash(_))
        take_part()
    take_part(rounds=1)
    undisturbed = scaffold.updates.copy()
    scaffold.round, scaffold.updates = 1, []
    take_part(rounds=3, state_dir=tmp_path / "other")
    assert scaffold.updates == undisturbed


def test_an_answer_that_was_lost_with_the_process_is_asked_for_when_the_round_has_moved_on(
    scaffold: Any, take_part: Run, tmp_path: Path
) -> None:
    scaffold.fault("PUT", ".*/update", crash_after(scaffold))
    with pytest.raises(KeyboardInterrupt):
        take_part()
    assert scaffold.round == 2 and not Memory(tmp_path / "device").proposal().acknowledged  # type: ignore[union-attr]
    take_part(rounds=1)
    first, again, second = (request.url.path for request in scaffold.sent("PUT", ".*/update"))
    assert first == again == "/v1/rounds/rnd_1/update" and second == "/v1/rounds/rnd_2/update"
    assert len(scaffold.updates) == 2
    committed = tensors(tmp_path / "device" / "memory.safetensors", tmp_path, "")
    assert same(committed, tensors(scaffold.updates[0], tmp_path, "control."))
    assert "control_reset" not in parse_header(scaffold.updates[1], len(scaffold.updates[1])).metadata


@pytest.mark.parametrize("killed", [False, True], ids=["refused", "killed and too late"])
def test_an_update_that_does_not_count_leaves_the_state_as_it_was(
    scaffold: Any, take_part: Run, tmp_path: Path, killed: bool
) -> None:
    take_part(rounds=1)
    if killed:
        scaffold.fault("PUT", ".*/update", crash)
        with pytest.raises(KeyboardInterrupt):
            take_part()
        scaffold.round = 3
    else:
        scaffold.fault("PUT", ".*/update", refuse(scaffold))
    take_part(rounds=1)
    assert scaffold.round == 4 and len(scaffold.updates) == 2
    committed = tensors(tmp_path / "device" / "memory.safetensors", tmp_path, "")
    assert same(committed, tensors(scaffold.updates[0], tmp_path, "control."))


def test_an_earlier_round_that_the_service_no_longer_knows_stops_nobody(scaffold: Any, take_part: Run) -> None:
    scaffold.fault("PUT", ".*/update", crash)
    with pytest.raises(KeyboardInterrupt):
        take_part()
    scaffold.round = 2
    body = {"type": TYPE_PREFIX + "not-found", "title": "T", "status": 404, "detail": "no such round"}
    scaffold.fault("PUT", ".*/rnd_1/update", lambda request: httpx.Response(404, json=body))
    assert [done.index for done in take_part(rounds=1).rounds] == [2]


# State that is gone


def reset(update: bytes) -> str | None:
    return parse_header(update, len(update)).metadata.get("control_reset")


@pytest.mark.parametrize("how", ["removed", "damaged"])
def test_a_lost_control_variate_is_told_once(scaffold: Any, take_part: Run, tmp_path: Path, how: str) -> None:
    take_part(rounds=2)
    for file in (tmp_path / "device").glob("memory*"):
        file.unlink() if how == "removed" else file.write_bytes(b"\x00")
    take_part(rounds=2)
    assert [reset(update) for update in scaffold.updates] == [None, None, "1", None]


def test_a_device_that_came_back_with_its_token_only_cannot_know_and_says_so(
    scaffold: Any, take_part: Run, tmp_path: Path
) -> None:
    take_part(rounds=1)
    take_part(rounds=1, join_token=None, token=scaffold.token, state_dir=tmp_path / "new")
    assert [reset(update) for update in scaffold.updates] == [None, "1"]


def test_moons_second_round_looks_at_the_first_ones_model(service: Any, take_part: Run, tmp_path: Path) -> None:
    service.plan |= {"objective": {"kind": "moon", "mu": 5.0}}
    take_part(rounds=1)
    first = service.updates[0]
    take_part(rounds=1)
    previous = tensors(tmp_path / "device" / "memory.safetensors", tmp_path, "previous.")
    assert same({name.removeprefix("previous."): v for name, v in previous.items()}, tensors(first, tmp_path, ""))


def test_moon_trains_otherwise_without_its_previous_model(service: Any, take_part: Run, tmp_path: Path) -> None:
    """The global model of round 2 is mdl_0 again: it differs from this device's previous one, if it has that."""
    service.plan |= {"objective": {"kind": "moon", "mu": 5.0}}
    for folder in ("kept", "lost"):
        service.round = 1
        for _ in range(2):
            service.current = "mdl_0"
            take_part(rounds=1, state_dir=tmp_path / folder)
            for file in (tmp_path / "lost").glob("memory*"):
                file.unlink()
        service.updates, (first, second) = [], service.updates
        if folder == "kept":
            kept = (first, second)
    assert first == kept[0] and second != kept[1]


def test_methods_without_state_leave_none(take_part: Run, tmp_path: Path) -> None:
    take_part()
    assert not list((tmp_path / "device").glob("memory*")) and not (tmp_path / "device" / "privacy.json").exists()


# The user's own module


@pytest.mark.parametrize("name", ["moon", "feduv"])
def test_a_module_without_features_is_refused_and_nothing_is_sent(service: Any, take_part: Run, name: str) -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    service.plan |= PLANS[name]
    with pytest.raises(errors.ModelMismatch, match="Give it a method features"):
        take_part(model=module)
    assert service.sent("PUT", ".*") == []
