"""A device's part in the federated generator: what it sends, that it repeats itself, what survives a crash."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from client_sdk import data, errors
from client_sdk.gan import train_gan
from contract.local import Adam
from contract.nn.registry import initialise
from contract.nn.wgan import Training, build_pair, pair
from contract.recipes.parts import GeneratorFedGan
from contract.tensors import TensorFile
from contract.wire.federations import Task

from .conftest import TASK, problem

Run = Callable[..., Any]
PLAN = GeneratorFedGan(
    options={"latent": 4, "hidden": [16]},
    critic_options={"hidden": [16]},
    batch_size=16,
    epochs=60,
    optimizer=Adam(lr=1e-2, betas=(0.0, 0.9)),
    input_range=(-4.0, 4.0),
)


def networks() -> torch.nn.ModuleDict:
    task = Task.model_validate(TASK)
    return pair(
        initialise(PLAN.architecture, PLAN.options, task, 1),
        initialise(PLAN.critic_architecture, PLAN.critic_options, task, 2),
    )


def cloud(count: int) -> data.Samples:
    """Points around (2.4, -2.4), which is (0.6, -0.6) to the generator."""
    x = np.array([2.4, -2.4], np.float32) + np.random.default_rng(0).normal(0, 0.2, (count, 2)).astype(np.float32)
    samples = data.load((x, np.zeros(count, np.int64)))
    samples.check(Task.model_validate(TASK))
    return samples


def train(both: torch.nn.ModuleDict, samples: data.Samples, plan: GeneratorFedGan = PLAN, seed: int = 3) -> float:
    return train_gan(both, samples, plan, seed=seed, device=torch.device("cpu"))


def test_the_generator_moves_towards_the_devices_data() -> None:
    both, noise = networks(), torch.randn(200, 4, generator=torch.Generator().manual_seed(3))

    def distance() -> float:
        with torch.no_grad():
            return float((both["generator"](noise).mean(dim=0) - torch.tensor([0.6, -0.6])).norm())

    before = distance()
    train(both, cloud(64))
    assert distance() < 0.5 * before


def test_the_same_seed_gives_the_same_networks_and_another_seed_others() -> None:
    made: list[Any] = []
    plan = PLAN.model_copy(update={"epochs": 2})
    for seed in (3, 3, 4):
        both = networks()
        torch.manual_seed(len(made))  # the process's own generator plays no part
        train(both, cloud(40), plan, seed)
        made.append(torch.cat([value.flatten() for value in both.state_dict().values()]))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_with_fewer_batches_than_critic_steps_the_generator_learns_too() -> None:
    both, plan = networks(), PLAN.model_copy(update={"epochs": 1})
    before = {name: value.clone() for name, value in both["generator"].named_parameters()}
    epochs: list[int] = []
    loss = train_gan(both, cloud(3), plan, seed=1, device=torch.device("cpu"), on_epoch=lambda n, _: epochs.append(n))
    assert np.isfinite(loss) and epochs == [1]
    assert any(not torch.equal(before[name], value) for name, value in both["generator"].named_parameters())


def test_flip_mirrors_about_half_of_the_images_that_the_critic_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    class Watched(Training):
        def critic_step(self, real: torch.Tensor) -> torch.Tensor:
            seen.append(real.clone())
            return super().critic_step(real)

    monkeypatch.setattr("client_sdk.gan.Training", Watched)
    samples = data.load((np.tile(np.array([[1.0, 3.0]], np.float32), (200, 1)), np.zeros(200, np.int64)))
    samples.check(Task.model_validate(TASK))
    for flip in (True, True, False):
        train(networks(), samples, PLAN.model_copy(update={"flip": flip, "epochs": 1, "batch_size": 200}))
    mirrored, again, plain = seen
    assert 70 < int((mirrored[:, 0] > mirrored[:, 1]).sum()) < 130
    assert torch.equal(mirrored, again), "by the seed"
    assert not (plain[:, 0] > plain[:, 1]).any()


def test_a_loss_that_is_not_finite_uploads_nothing() -> None:
    samples = cloud(8)
    assert isinstance(samples.inputs, torch.Tensor)
    samples.inputs[0] = float("inf")
    with pytest.raises(errors.TrainingError, match="nothing was uploaded.*generator's optimizer.lr"):
        train(networks(), samples)


def test_a_device_trains_each_round_from_what_it_was_sent(service: Any, take_part: Run, tmp_path: Path) -> None:
    service.want_gan()
    service.want_discriminator = True
    report = take_part()
    assert (report.state, report.rounds_trained, len(service.gans)) == ("finished", 2, 2)
    assert service.discriminator is not None
    assert service.gans[0] != service.gans[1]
    (tmp_path / "sent").write_bytes(service.gans[1])
    with TensorFile(tmp_path / "sent") as file:
        assert file.header.metadata["num_samples"] == "40"
        assert file.header.metadata["base_model"] == "mdl_gan2"
        assert set(file.names) == set(build_pair(GeneratorFedGan(**service.gan_plan), service.task).state_dict())


def test_the_same_device_sends_the_same_generator(service: Any, take_part: Run, tmp_path: Path) -> None:
    service.want_gan(rounds=1)
    for folder, name in (("one", "ward-7"), ("two", "ward-7"), ("three", "ward-8")):
        service.gan_round, service.round, service.state = 1, 1, "running"
        take_part(rounds=1, state_dir=tmp_path / folder, name=name)
    assert service.gans[0] == service.gans[1]
    assert service.gans[0] != service.gans[2]


def test_a_crash_before_the_upload_sends_the_same_bytes(
    service: Any, take_part: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(request: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    service.want_gan(rounds=1)
    service.fault("PUT", ".*/gan", crash)
    with pytest.raises(KeyboardInterrupt):
        take_part()
    kept = (tmp_path / "device" / "pending.safetensors").read_bytes()
    monkeypatch.setattr("client_sdk.stages.train_gan", None)
    assert take_part(rounds=1).rounds_trained == 1
    assert service.gans == [kept]
    assert not list((tmp_path / "device").glob("pending*"))


def test_a_round_that_closed_meanwhile_is_left_and_the_next_one_trained(service: Any, take_part: Run) -> None:
    def closed(request: httpx.Request) -> httpx.Response:
        service.gan_round, service.models["mdl_gan2"] = 2, service.models["mdl_gan1"]
        return problem("round-closed")

    service.want_gan()
    service.fault("PUT", ".*/gan", closed)
    assert take_part().state == "finished"
    assert len(service.gans) == 1


@pytest.mark.parametrize("architecture", ["gen-resnet", "gen-dcgan"])
def test_a_device_with_one_sample_takes_part(architecture: str) -> None:
    task = Task.model_validate({"num_classes": 2, "input": {"shape": [1, 8, 8]}})
    plan = PLAN.model_copy(update={"architecture": architecture, "options": {}, "epochs": 2})
    both = pair(
        initialise(architecture, {}, task, 1), initialise(plan.critic_architecture, plan.critic_options, task, 2)
    )
    one = data.load((np.full((1, 1, 8, 8), 0.5, np.float32), np.array([0])))
    one.check(task)
    assert np.isfinite(train_gan(both, one, plan, seed=1, device=torch.device("cpu")))
    assert all(bool(torch.isfinite(each).all()) for each in both.parameters())
