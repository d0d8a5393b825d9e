"""Rounds that average generators and let each client's discriminator judge, against averages and scores by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from contract.local import DafkdObjective, LocalPlan
from contract.recipes import presets
from contract.recipes.errors import RecipeError
from tests.reference import ensembles as slow
from worker.pipeline.drawing import round_set
from worker.pipeline.job import Round
from worker.pipeline.networks import build_network
from worker.specs import JobFailure, NetworkRef

GENERATOR: dict[str, Any] = {"architecture": "gen-mlp", "options": {"latent": 3, "hidden": [5]}}
LOCAL = LocalPlan(objective=DafkdObjective(options=GENERATOR["options"], input_range=(-2.0, 4.0)))
OPTIONS: dict[str, Any] = {"schedule": {"epochs": 1, "batch_size": 8}, "count": 13, "warmup_rounds": 0}
TWO = {
    "one": {"architecture": "mlp", "options": {"hidden": [5]}},
    "two": {"architecture": "cnn-digits", "options": {"widths": [3, 4]}},
}


def test_two_rounds_of_the_whole_recipe_repeat_themselves(tmp_path: Path, federation: Any, repeatable: Any) -> None:
    """The first only averages (`warmup_rounds`); the second distils on samples of the generator that it made."""
    world = federation(tmp_path, presets.build("dafkd", OPTIONS | {"warmup_rounds": 1}), LOCAL)
    first = world.round()
    assert first.metrics["warm_up"] and "distil" not in first.metrics
    second = repeatable(world)
    assert set(second.metrics["distil"]) == {"main"} and second.metrics["teacher_forwards"] == 5 * 13
    assert first.state["send.generator"].read_bytes() != second.state["send.generator"].read_bytes()


def test_generators_of_all_prototypes_are_averaged_by_samples(tmp_path: Path, federation: Any, tensors: Any) -> None:
    world = federation(tmp_path, presets.build("dafkd", OPTIONS), LOCAL, TWO)
    updates = world.updates()
    assert {each.prototype for each in updates} == {"one", "two"}
    result = world.round(updates)
    shares = np.array([each.num_samples for each in updates]) / sum(each.num_samples for each in updates)
    sent = [tensors(each.weights) for each in updates]
    for name, value in tensors(result.state["send.generator"]).items():
        expected = sum(
            share * each[f"generator.{name}"].astype(float) for share, each in zip(shares, sent, strict=True)
        )
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-7)
    assert not [path for path in (tmp_path / "round-1").iterdir() if path.name.startswith("generator-")]


def test_a_round_draws_from_the_generator_that_its_devices_were_sent(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("dafkd", OPTIONS), LOCAL)
    spec = world.spec("drawn")
    job = Round.begin(spec, lambda _: None, "cpu")
    before = round_set(job)
    job.state["send.generator"] = tmp_path / "another"
    assert torch.equal(before, round_set(job)) and before.shape == (13, 1, 4, 4)
    assert float(before.min()) >= -2 and float(before.max()) <= 4
    later = round_set(Round.begin(spec.model_copy(update={"round_index": 2}), lambda _: None, "cpu"))
    assert not torch.equal(before, later)


@pytest.mark.parametrize("data", ["generated", "unlabeled"])
@pytest.mark.parametrize("link", ["sigmoid", "double_sigmoid"])
def test_teachers_count_by_their_heads_on_their_own_features(
    data: str, link: str, tmp_path: Path, federation: Any, tensors: Any
) -> None:
    more: dict[str, Any] = {"data": {"kind": "unlabeled"}} if data == "unlabeled" else {}
    options = {key: value for key, value in OPTIONS.items() if not (more and key == "count")} | more
    world = federation(tmp_path, presets.build("dafkd", options | {"link": link}), LOCAL)
    updates, spec = world.updates(), world.spec("asked")
    inputs = round_set(Round.begin(spec, lambda _: None, "cpu"))
    rows, names = [], tensors(world.models["main"])
    for update in updates:
        state = tensors(update.weights)
        module = build_network(NetworkRef(**world.networks["main"]), world.task, "cpu", owner="by hand").eval()
        module.load_state_dict({name: torch.from_numpy(state[name]) for name in names})
        with torch.no_grad():
            features = module.features(inputs).double().numpy()  # type: ignore[operator]
        scores = features @ state["discriminator.weight"][0].astype(float) + state["discriminator.bias"].astype(float)
        rows.append([slow.LINKS[link](float(a)) for a in scores])
    result = world.round(updates)
    made = [result.metrics["teacher_weights"][each.client] for each in updates]
    np.testing.assert_allclose(made, np.mean(slow.dafkd(rows), axis=1), rtol=1e-4)


def test_a_head_that_gives_no_number_is_its_clients(tmp_path: Path, federation: Any, monkeypatch: Any) -> None:
    world = federation(tmp_path, presets.build("dafkd", OPTIONS), LOCAL)
    trained = world.trained

    def spoilt(client: str, prototype: str) -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = trained(client, prototype)
        if client == "ward-3":
            arrays["discriminator.weight"][:] = 3e38
        return arrays

    monkeypatch.setattr(world, "trained", spoilt)
    with pytest.raises(JobFailure, match="discriminator of 'ward-3'") as caught:
        world.round()
    assert (caught.value.code, caught.value.client) == ("non_finite", "ward-3")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"discriminators": {"generator": {"kind": "wgan_gp"}}}, "leave out the part 'discriminators'"),
        ({"data": {"kind": "generated", "count": 5}, "fresh": False}, "set distil.data.fresh to true"),
        ({"link": "prob"}, "take link 'sigmoid' in place of 'prob'"),
    ],
)
def test_what_does_not_go_with_rounds_that_make_the_generator(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        presets.build("dafkd", options)


def test_a_range_ascends() -> None:
    with pytest.raises(ValidationError, match="the upper end must be above the lower"):
        DafkdObjective(input_range=(1.0, 1.0))
