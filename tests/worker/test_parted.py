"""Students and teachers of which a part is trained: what is frozen keeps its weights and its statistics."""

from pathlib import Path

import pytest
import torch

from contract.nn.codec import save_state
from contract.nn.registry import initialise
from contract.partition import Parts, partition
from contract.recipes.presets import build
from contract.tensors import TensorFile
from contract.whole import part_files
from contract.wire.federations import Task
from worker.pipeline.data import Augmenter
from worker.pipeline.distil import DistillationTask, teach
from worker.pipeline.networks import build_network, moving, recalibrate
from worker.pipeline.targets import Targets
from worker.specs import JobFailure, NetworkRef

TASK = Task.model_validate({"num_classes": 3, "input": {"shape": [1, 8, 8]}})
IMAGES = torch.randn(24, 1, 8, 8, generator=torch.Generator().manual_seed(1)) + 2
STATISTICS = {f"{layer}.{name}" for layer in (1, 4) for name in ("running_mean", "running_var", "num_batches_tracked")}


def parted(folder: Path, *trains: str) -> NetworkRef:
    whole = folder / "whole.safetensors"
    save_state(initialise("cnn-digits", {}, TASK, 0), whole)
    with TensorFile(whole) as file:
        shared = partition(Parts(trains=list(trains)), file.header).shared
    part_files(whole, shared, folder / "base.safetensors", folder / "moving.safetensors")
    weights, base = folder / "moving.safetensors", folder / "base.safetensors"
    return NetworkRef(architecture="cnn-digits", weights=weights, base=base)


def changed(network: NetworkRef, module: torch.nn.Module) -> set[str]:
    before = build_network(network, TASK, "cpu", owner="before").state_dict()
    return {name for name, value in module.state_dict().items() if not torch.equal(value, before[name])}


def learn(network: NetworkRef, **options: object) -> torch.nn.Module:
    module = build_network(network, TASK, "cpu", owner="student")
    distil = build("feddf", {"schedule": {"steps": 3, "batch_size": 8}, **options}).distil
    assert distil is not None
    logits = torch.randn(24, 3, generator=torch.Generator().manual_seed(2))
    augment = Augmenter(distil.data.augment, TASK, 0)
    task = DistillationTask(IMAGES, Targets(logits), distil, 0, 1, 1, augment, moving=moving(network))
    teach(module, task, lambda step: None)
    assert all(parameter.requires_grad for parameter in module.parameters())
    return module


def test_a_student_learns_its_trained_tensors_by_the_bases_statistics(tmp_path: Path) -> None:
    network = parted(tmp_path, "7.*")
    assert changed(network, learn(network)) == {"7.weight", "7.bias"}


def test_batch_norm_whose_weights_are_trained_and_whose_statistics_are_not_keeps_these(tmp_path: Path) -> None:
    network = parted(tmp_path, "*.weight", "*.bias")
    assert changed(network, learn(network)) == set(moving(network) or ())
    assert not STATISTICS & (moving(network) or set())


def test_statistics_that_move_move(tmp_path: Path) -> None:
    network = parted(tmp_path, "4.*", "7.*")
    found = changed(network, learn(network))
    assert found == {"7.weight", "7.bias", "4.weight", "4.bias"} | {name for name in STATISTICS if name[0] == "4"}


@pytest.mark.parametrize("trains", [("7.*",), ("4.*", "7.*")], ids=["none", "one layer's"])
def test_only_statistics_that_move_are_computed_anew(tmp_path: Path, trains: tuple[str, ...]) -> None:
    network = parted(tmp_path, *trains)
    module = build_network(network, TASK, "cpu", owner="teacher")
    recalibrate(module, IMAGES, "cpu", moving(network))
    assert changed(network, module) == ({"4.running_mean", "4.running_var"} if len(trains) > 1 else set())


def test_a_part_alone_is_no_network_that_could_run(tmp_path: Path) -> None:
    network = parted(tmp_path, "7.*")
    with pytest.raises(JobFailure, match="2 trained tensors of a network whose base is sha256-") as refused:
        build_network(network.model_copy(update={"base": None}), TASK, "cpu", owner="teacher")
    assert refused.value.code == "schema_mismatch"
