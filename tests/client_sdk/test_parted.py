"""A device that trains a part of its network: what travels, what it keeps to itself, and what it has at the end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from torch import nn

from client_sdk import data, errors
from client_sdk.memory import Memory
from client_sdk.parted import partition_of
from client_sdk.reports import RunReport
from client_sdk.training import train_local
from contract.local import LocalPlan
from contract.nn import codec
from contract.nn.graphs.exporting import export
from contract.nn.graphs.module import GraphNetwork
from contract.nn.registry import initialise
from contract.tensors import TensorFile, parse_header
from contract.updates import BASE_KEY
from contract.wire.federations import Prototype, Task

from .conftest import FakeService
from .test_runner_methods import crash, refuse, tensors

Run = Callable[..., RunReport]
TRAINED, BASE = {"3.weight", "3.bias"}, {"1.weight", "1.bias"}


def names(body: bytes) -> set[str]:
    return set(parse_header(body, len(body)).tensors)


def differ(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {name for name in one if not np.array_equal(one[name], other[name])}


@pytest.fixture
def whole(service: FakeService, tmp_path: Path) -> dict[str, Any]:
    return tensors(service.models["mdl_0"], tmp_path, "")


# ------------------------------------------------------------------------------------------------------- what travels
def test_rounds_carry_the_trained_tensors_and_the_base_travels_once(
    service: FakeService, take_part: Run, whole: dict[str, Any]
) -> None:
    service.part(trains=["3.*"])
    report = take_part()
    assert [names(update) for update in service.updates] == [TRAINED, TRAINED]
    assert len(service.sent("GET", "/v1/models/mdl_base/weights")) == 1
    small = sum(whole[name].nbytes for name in TRAINED)  # (8 + 1) * 2 floats
    assert small == 72
    sent = [len(request.content) for request in service.sent("PUT", ".*/update")]
    assert all(small <= size < small + 1100 for size in sent), sent  # and a header
    assert report.model_path is not None
    with TensorFile(report.model_path) as file:
        final = {name: file.read(name) for name in file.names}
        assert BASE_KEY not in file.header.metadata
    assert differ(final, whole) == TRAINED


def test_all_of_the_network_takes_more(service: FakeService, take_part: Run, tmp_path: Path) -> None:
    take_part()
    full = [len(request.content) for request in service.sent("PUT", ".*/update")]
    service.requests.clear()
    service.round, service.current, service.updates = 1, "mdl_0", []
    service.part(trains=["3.bias"])
    take_part(state_dir=tmp_path / "other")
    assert max(len(request.content) for request in service.sent("PUT", ".*/update")) < min(full)


def test_a_base_that_is_damaged_is_fetched_again(service: FakeService, take_part: Run, tmp_path: Path) -> None:
    service.part(trains=["3.*"])
    take_part(rounds=1)
    (base,) = (tmp_path / "device" / "models").glob(f"{service.ref('mdl_base')['digest']}*")
    sound = base.read_bytes()
    base.write_bytes(sound[:-1] + b"\xff")
    take_part(rounds=1)
    assert base.read_bytes() == sound
    assert len(service.sent("GET", "/v1/models/mdl_base/weights")) == 2
    undisturbed = service.updates.copy()
    service.round, service.current, service.updates = 1, "mdl_0", []
    take_part(rounds=2, state_dir=tmp_path / "other")
    assert service.updates == undisturbed


def test_no_more_than_one_base_is_kept(service: FakeService, take_part: Run, tmp_path: Path) -> None:
    service.part(trains=["3.*"])
    take_part(rounds=1)
    first = service.ref("mdl_base")["digest"]
    service.part(trains=["3.bias"])
    service.current = "mdl_0"
    take_part(rounds=1)
    kept = {path.name.removesuffix(".safetensors") for path in (tmp_path / "device" / "models").iterdir()}
    assert kept == {service.ref("mdl_0")["digest"], service.ref("mdl_base")["digest"]}
    assert first not in kept


@pytest.mark.parametrize("extras", [{}, {"base": "mdl_gen"}], ids=["no base", "another base"])
def test_an_adapter_without_its_base_is_refused(service: FakeService, take_part: Run, extras: dict[str, str]) -> None:
    service.part(trains=["3.*"])
    base = service.ref("mdl_base")["digest"]
    service.extras = extras
    with pytest.raises(errors.ModelMismatch, match=f"base (is )?{base}"):
        take_part()
    assert not service.updates


def test_a_module_of_ones_own_has_the_whole_network_at_the_end(service: FakeService, take_part: Run) -> None:
    service.part(trains=["3.*"])
    module = nn.Sequential(nn.Flatten(), nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    report = take_part(model=module)
    assert report.model_path is not None
    codec.load_state(
        copied := nn.Sequential(nn.Flatten(), nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2)), report.model_path
    )
    state = module.state_dict()
    assert all(torch.equal(state[name], value) for name, value in copied.state_dict().items())
    assert all(value.requires_grad for value in module.parameters())


def test_patterns_of_another_network_are_refused_before_the_device_joins(service: FakeService, take_part: Run) -> None:
    service.parts = {"trains": ["3.*", "hood.*"]}
    with pytest.raises(errors.ModelMismatch, match="'main': trains.1: 'hood.*' is the name of none"):
        take_part()
    assert not service.sent("POST", ".*")


# ------------------------------------------------------------------------------------------------------ what is kept
@pytest.fixture
def keeps(service: FakeService, whole: dict[str, Any]) -> FakeService:
    service.rounds = 4
    service.part(keeps=["3.*"])
    return service


def test_what_is_kept_is_in_no_update_and_there_again_next_round(
    keeps: FakeService, take_part: Run, whole: dict[str, Any], tmp_path: Path
) -> None:
    memory = Memory(tmp_path / "device")
    before = {name: whole[name] for name in TRAINED}
    for _ in range(3):
        take_part(rounds=1)
        assert names(keeps.updates[-1]) == BASE
        proposal = memory.proposal()
        assert proposal is not None and proposal.acknowledged
        kept = tensors(tmp_path / "device" / "memory.next.safetensors", tmp_path, "kept.")
        own = {name.removeprefix("kept."): values for name, values in kept.items()}
        assert differ(own, before) == TRAINED  # it goes on from what it had
        before = own
    report = take_part()
    assert report.model_path is not None
    final = tensors(report.model_path, tmp_path, "")
    assert differ({name: final[name] for name in TRAINED}, before) == TRAINED  # of the fourth round
    sent = tensors(keeps.updates[-1], tmp_path, "")
    assert not differ(sent, final)


def test_rounds_in_one_go_and_one_by_one_are_the_same(keeps: FakeService, take_part: Run, tmp_path: Path) -> None:
    for _ in range(4):
        take_part(rounds=1)
    single = keeps.updates.copy()
    keeps.round, keeps.current, keeps.updates = 1, "mdl_0", []
    take_part(state_dir=tmp_path / "other")
    assert keeps.updates == single


@pytest.mark.parametrize("fault", [crash, refuse], ids=["killed", "refused"])
def test_an_update_that_does_not_count_leaves_what_is_kept_as_it_was(
    keeps: FakeService, take_part: Run, tmp_path: Path, fault: Any
) -> None:
    take_part(rounds=1)
    before = tensors(tmp_path / "device" / "memory.next.safetensors", tmp_path, "kept.")
    answer: Callable[[httpx.Request], httpx.Response] = crash if fault is crash else refuse(keeps)
    keeps.fault("PUT", ".*/update", answer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("client_sdk.runner.DeviceRun._next", _twice(keeps))
        with pytest.raises((KeyboardInterrupt, StopIteration)):
            take_part()
    assert not differ(tensors(tmp_path / "device" / "memory.safetensors", tmp_path, "kept."), before)


def _twice(service: FakeService) -> Any:
    from client_sdk.runner import DeviceRun

    real, calls = DeviceRun._next, iter(range(1))

    def asks(run: Any) -> Any:
        next(calls)
        return real(run)

    return asks


def test_a_device_that_lost_what_it_kept_begins_with_the_first_values(
    keeps: FakeService, take_part: Run, tmp_path: Path
) -> None:
    take_part(rounds=1)
    first = keeps.updates.copy()
    for file in (tmp_path / "device").glob("memory*"):
        file.unlink()
    keeps.round, keeps.current, keeps.updates = 1, "mdl_0", []
    take_part(rounds=1)
    assert keeps.updates == first


PLANS: dict[str, dict[str, Any]] = {
    "fedprox": {"objective": {"kind": "fedprox", "mu": 10.0}},
    "scaffold": {"objective": {"kind": "scaffold"}},
    "fedgkd": {"objective": {"kind": "fedgkd", "gamma": 1.0}},
    "moon": {"objective": {"kind": "moon"}},
    "private": {"privacy": {"noise_multiplier": 1.0}},
}


@pytest.mark.parametrize("name", PLANS)
def test_methods_act_on_what_is_sent_and_leave_what_is_frozen(
    service: FakeService, take_part: Run, tmp_path: Path, name: str
) -> None:
    service.options = {"hidden": [8, 8]}
    service.add_model("mdl_0", "mlp", service.options)
    whole = tensors(service.models["mdl_0"], tmp_path, "")
    service.plan |= PLANS[name]
    service.part(trains=["3.*"], keeps=["5.*"])
    if name == "fedgkd":
        service.models["mdl_teacher"], service.extras["teacher"] = service.models["mdl_0"], "mdl_teacher"
    report = take_part()
    sent = {tensor for tensor in names(service.updates[-1]) if not tensor.startswith("control.")}
    assert sent == TRAINED
    controls = {tensor for tensor in names(service.updates[-1]) if tensor.startswith("control.")}
    assert controls == ({f"control.{tensor}" for tensor in TRAINED} if name == "scaffold" else set())
    assert report.model_path is not None
    final = tensors(report.model_path, tmp_path, "")
    expected = TRAINED | {"5.weight", "5.bias"}
    assert differ(final, whole) == (expected - TRAINED if name == "scaffold" else expected)
    if name == "moon":
        memory = tensors(tmp_path / "device" / "memory.safetensors", tmp_path, "previous.")
        assert {tensor.removeprefix("previous.") for tensor in memory} == expected


# ------------------------------------------------------------------------------------------------------ BatchNorm
@pytest.mark.parametrize(
    ("trains", "move"),
    [
        (["7.*"], set()),
        (["*.weight", "*.bias"], set()),  # the weights are trained, by the base's statistics
        (["4.*", "7.*"], {"4"}),
    ],
)
def test_frozen_statistics_do_not_move(trains: list[str], move: set[str]) -> None:
    task = Task.model_validate({"num_classes": 3, "input": {"shape": [1, 8, 8]}})
    module = initialise("cnn-digits", {}, task, 0)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    samples = data.load((torch.randn(12, 1, 8, 8) + 2, torch.arange(12) % 3))
    samples.check(task)
    parts = partition_of(module, Prototype(architecture="cnn-digits", trains=trains))
    result = train_local(module, samples, LocalPlan(), seed=0, device=torch.device("cpu"), parts=parts)
    changed = {name for name, value in module.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == set(result.tensors)
    assert {name.partition(".")[0] for name in changed if "running" in name} == move


@pytest.mark.parametrize("trains", [["7.*"], ["4.*", "7.*"]])
def test_a_network_that_is_a_document_trains_the_same_part(trains: list[str]) -> None:
    task = Task.model_validate({"num_classes": 3, "input": {"shape": [1, 8, 8]}})
    module = initialise("cnn-digits", {}, task, 0)
    graph = GraphNetwork(export(module, [1, 8, 8]))
    graph.load_state_dict(module.state_dict())
    samples = data.load((torch.randn(12, 1, 8, 8) + 2, torch.arange(12) % 3))
    samples.check(task)
    found = []
    for network in (module, graph):
        parts = partition_of(network, Prototype(architecture="cnn-digits", trains=trains))
        train_local(network, samples, LocalPlan(epochs=2), seed=0, device=torch.device("cpu"), parts=parts)
        found.append(network.state_dict())
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


def test_a_weight_that_two_layers_share_is_trained_by_both_names_or_none() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    task = Task.model_validate({"num_classes": 2, "input": {"shape": [2]}})
    samples = data.load((torch.randn(8, 2), torch.arange(8) % 2))
    samples.check(task)
    parts = partition_of(module, Prototype(architecture="custom", trains=["1.*"]))
    with pytest.raises(errors.ModelMismatch, match=r"'0.weight' and '1.weight' are one parameter.* name both"):
        train_local(module, samples, LocalPlan(), seed=0, device=torch.device("cpu"), parts=parts)


@pytest.mark.parametrize("plan", [{"privacy": {"noise_multiplier": 1.0}}, {"precision": {"kind": "binary"}}, {}])
def test_adapters_beside_linear_layers_are_trained_by_every_kind_of_step(plan: dict[str, Any]) -> None:
    task = Task.model_validate({"num_classes": 3, "input": {"shape": [6], "dtype": "int64"}})
    options = {"vocab_size": 50, "lora_rank": 2}
    prototype = Prototype(architecture="transformer-tiny", options=options, trains=["*.lora_*", "head.*"])
    module = initialise(prototype.architecture, options, task, 0)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    draw = torch.Generator().manual_seed(0)
    samples = data.load((torch.randint(1, 50, (24, 6), generator=draw), torch.arange(24) % 3))
    samples.check(task)
    steps = LocalPlan.model_validate({"epochs": 3, "batch_size": 8, **plan})
    parts = partition_of(module, prototype)
    assert parts is not None
    train_local(module, samples, steps, seed=0, device=torch.device("cpu"), parts=parts)
    changed = {name for name, value in module.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == set(parts.shared)
