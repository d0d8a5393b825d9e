"""What is kept between rounds and sent to devices, and the jobs before the first round."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.local import FedGkdObjective, FedTgpObjective, LocalPlan
from contract.nn.codec import save_state
from contract.nn.registry import initialise
from contract.recipes import parts, presets
from contract.tensors import write_file
from contract.updates import FEATURES_KEY
from worker.pipeline import run
from worker.pipeline.job import header_of
from worker.specs import (
    Datasets,
    GeneratorSpec,
    InitializeSpec,
    JobFailure,
    JobResult,
    NetworkRef,
    PrototypeSpec,
    UpdateSpec,
)

Read = Callable[[Path], dict[str, np.ndarray]]
MLP: dict[str, Any] = {"architecture": "mlp", "options": {"hidden": [5]}}
PLAIN: dict[str, Any] = {"datasets": Datasets()}
GENERATOR: dict[str, Any] = {"architecture": "gen-mlp", "options": {"latent": 4, "hidden": [8]}}


def ignore(_: object) -> None:
    """Take progress and do nothing with it."""


def test_a_recipe_that_keeps_nothing_changes_no_state(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedavg"))
    assert world.round(**PLAIN).state is None


# --------------------------------------------------------------------------------------------------------------- FedGKD
def test_fedgkds_teacher_is_the_mean_of_the_last_published_models(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    plan = LocalPlan(objective=FedGkdObjective(history=2))
    world = federation(tmp_path, presets.build("fedgkd"), plan)
    for _ in range(3):
        world.round(**PLAIN)
    published = [tensors(result.models["main"]) for result in world.results]
    assert set(world.state) == {"global.main.2", "global.main.3", "send.teacher.main"}
    for name, values in tensors(world.state["send.teacher.main"]).items():
        if values.dtype == np.int64:
            assert int(values) == int(published[2][name])
        else:
            np.testing.assert_allclose(values, (published[1][name] + published[2][name]) / 2, rtol=1e-5, atol=1e-6)


def test_fedgkd_plus_keeps_models_after_distillation(tmp_path: Path, federation: Any, tensors: Read) -> None:
    recipe = presets.build("fedgkd+", {"schedule": {"steps": 3, "batch_size": 8}})
    world = federation(tmp_path, recipe, presets.PRESETS["fedgkd+"].local, {"main": MLP})
    result = world.round()
    teacher, model = (tensors(path) for path in (world.state["send.teacher.main"], result.models["main"]))
    assert all(np.array_equal(teacher[name], model[name]) for name in model)
    assert not np.array_equal(model["1.weight"], tensors(tmp_path / "round-1/average-0.safetensors")["1.weight"])


def test_an_absent_prototypes_teacher_stays(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedgkd"), LocalPlan(objective=FedGkdObjective()), {"a": MLP, "b": MLP})
    world.round(**PLAIN)
    before = world.state["send.teacher.b"].read_bytes()
    world.round([update for update in world.updates() if update.prototype == "a"], **PLAIN)
    assert world.state["send.teacher.b"].read_bytes() == before
    assert {name for name in world.state if name.startswith("global.")} == {
        "global.a.1", "global.b.1", "global.a.2",
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- FedTGP
FEDTGP = LocalPlan(objective=FedTgpObjective())


def classes(world: Any, tensors: Read, prototypes: int = 3) -> list[Any]:
    """Return updates whose class means lie around a point of their own per class."""
    found = []
    for number, update in enumerate(world.updates()):
        state = tensors(update.weights)
        width = state["class_means"].shape[1]
        state["class_means"] = (4 * np.eye(3, width) + 0.05 * number).astype(np.float32)
        state["class_counts"] = np.array([1, 1, 1][:prototypes] + [0] * (3 - prototypes))
        path = world.root / f"classes-{number}"
        write_file(path, state)
        found.append(update.model_copy(update={"weights": path}))
    return found


def test_fedtgp_trains_prototypes_near_their_classes_and_goes_on_from_round_to_round(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    world = federation(tmp_path, presets.build("fedtgp"), FEDTGP, {"main": MLP})
    first = world.round(classes(world, tensors), **PLAIN)
    made = tensors(world.state["send.prototypes"])["prototypes"]
    assert made.shape == (3, 5)
    targets = 4 * np.eye(3, 5) + 0.1
    distances = np.linalg.norm(made[:, None] - targets[None], axis=2)
    assert (distances.argmin(axis=1) == np.arange(3)).all()
    figures = first.metrics["prototypes"]
    assert figures["margin"] == pytest.approx(4 * np.sqrt(2), rel=1e-3)
    assert figures["means"] == 15
    forgetful = run(world.spec("forgetful", classes(world, tensors), **PLAIN, state={}), ignore)
    second = world.round(classes(world, tensors), **PLAIN)
    assert second.metrics["prototypes"]["loss"] < figures["loss"]
    assert second.metrics["prototypes"]["loss"] < forgetful.metrics["prototypes"]["loss"]
    assert set(world.state) == {"tgp", "send.prototypes"}
    assert set(tensors(world.models["main"])) == {"1.weight", "1.bias", "3.weight", "3.bias"}


def test_fedtgps_constants_are_options(tmp_path: Path, federation: Any, tensors: Read) -> None:
    """With one epoch and one batch the prototypes move by one step: lr times the gradient."""
    made = {}
    for lr in (1e-6, 0.01, 0.02):
        few: dict[str, Any] = {"server_epochs": 1, "server_batch_size": 64, "server_lr": lr, "margin": 2.5}
        plan = LocalPlan(objective=FedTgpObjective(**few))
        (tmp_path / str(lr)).mkdir()
        world = federation(tmp_path / str(lr), presets.build("fedtgp"), plan, {"main": MLP})
        figures = world.round(classes(world, tensors), **PLAIN).metrics["prototypes"]
        assert figures["margin"] == 2.5
        made[lr] = tensors(world.state["tgp"])
    for name, start in made[1e-6].items():
        once, twice = made[0.01][name] - start, made[0.02][name] - start
        np.testing.assert_allclose(twice, 2 * once, rtol=0.02, atol=1e-6)
    assert any(np.abs(made[0.01][name] - start).max() > 1e-4 for name, start in made[1e-6].items())
    assert "server_lr" not in FedTgpObjective().model_dump(), "devices of before take the paper's plan"


def test_fedtgp_with_one_class_or_features_of_two_sizes(tmp_path: Path, federation: Any, tensors: Read) -> None:
    world = federation(tmp_path, presets.build("fedtgp"), FEDTGP, {"main": MLP})
    result = world.round(classes(world, tensors, prototypes=1), **PLAIN)
    assert result.state is None
    assert result.metrics["prototypes"]["margin"] is None
    wide = {"architecture": "mlp", "options": {"hidden": [6]}}
    (tmp_path / "two").mkdir()
    mixed = federation(tmp_path / "two", presets.build("fedtgp"), FEDTGP, {"a": MLP, "b": wide})
    with pytest.raises(JobFailure, match="common_head") as caught:
        mixed.round(**PLAIN)
    assert caught.value.code == "schema_mismatch"


# ----------------------------------------------------------------------------------------------------- the first models
def test_first_models_of_groups_differ_and_the_server_has_its_own(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    head = {"architecture": "mlp", "options": {"hidden": [4], "common_head": True}}
    recipe = presets.build("fedet", {"groups": {"kind": "random", "count": 2}})
    world = federation(tmp_path, recipe, prototypes={"main": head}, server=head)
    assert set(world.models) == {"main", "main~1", "server"}
    assert len({path.read_bytes() for path in world.models.values()}) == 3
    assert {header_of(path).metadata[FEATURES_KEY] for path in world.models.values()} == {"128"}


def test_a_prototype_must_not_have_the_servers_name(tmp_path: Path, federation: Any) -> None:
    spec = InitializeSpec(
        seed=1,
        task=federation.task,
        prototypes=[PrototypeSpec(name="server", network=NetworkRef(**MLP))],
        server_model=PrototypeSpec(name="server", network=NetworkRef(**MLP)),
        output_dir=tmp_path,
    )
    with pytest.raises(JobFailure, match="rename") as caught:
        run(spec, ignore)
    assert caught.value.code == "bad_option"


def test_averages_keep_what_the_first_model_says_of_its_features(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedavgm"))
    world.round(**PLAIN)
    world.round(**PLAIN)
    assert header_of(world.models["main"]).metadata[FEATURES_KEY] == "4"


# ----------------------------------------------------------------------------------------------------------- generators
def generate(tmp_path: Path, federation: Any, out: str, **changes: Any) -> JobResult:
    module = initialise("gen-mlp", GENERATOR["options"], federation.task, 9)
    save_state(module, tmp_path / "imported")
    fields: dict[str, Any] = {
        "seed": 3,
        "task": federation.task,
        "generator": parts.GeneratorImported(model="mdl_1", **GENERATOR, input_range=(-2.0, 6.0)),
        "weights": tmp_path / "imported",
        "discriminator": NetworkRef(architecture="disc-mlp", options={"hidden": [4]}),
        "output_dir": tmp_path / out,
    }
    return run(GeneratorSpec(**(fields | changes)), ignore)


def test_an_imported_generator_is_taken_as_it_is(tmp_path: Path, federation: Any, tensors: Read) -> None:
    result = generate(tmp_path, federation, "plain")
    assert set(result.models) == {"generator", "discriminator"}
    assert result.metrics["input_range"] == [-2.0, 6.0]
    given, made = tensors(tmp_path / "imported"), tensors(result.models["generator"])
    assert all(np.array_equal(made[name], given[name]) for name in given)


def test_samples_are_drawn_once_from_the_generator_in_the_datas_range(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    data = parts.DataGenerated(count=300)
    first, again = (generate(tmp_path, federation, out, data=data) for out in ("a", "b"))
    assert first.models["samples"].read_bytes() == again.models["samples"].read_bytes()
    inputs = tensors(first.models["samples"])["inputs"]
    assert inputs.shape == (300, 1, 4, 4)
    assert inputs.dtype == np.float32
    module = initialise("gen-mlp", GENERATOR["options"], federation.task, 9).eval()
    with torch.no_grad():
        middle = module(torch.randn(4000, 4)).numpy()
    np.testing.assert_allclose(inputs.mean(), middle.mean() * 4 + 2, atol=0.15)
    assert inputs.min() > -2
    assert inputs.max() < 6


def test_noise_is_a_set_of_its_own_for_scores(tmp_path: Path, federation: Any, tensors: Read) -> None:
    data = parts.DataNoise(count=10, low=0.5, high=1.0)
    inputs = tensors(generate(tmp_path, federation, "noise", data=data).models["samples"])["inputs"]
    assert inputs.shape == (10, 1, 4, 4)
    assert inputs.min() >= 0.5


def test_a_federated_generator_is_the_average_of_the_clients(tmp_path: Path, federation: Any, tensors: Read) -> None:
    """Two rounds of three clients, whose training is noise."""
    plan = parts.GeneratorFedGan(**GENERATOR, critic_options={"hidden": [3]}, rounds=2, input_range=(-1.0, 3.0))
    rng = np.random.default_rng(2)
    result = generate(tmp_path, federation, "gan-0", generator=plan, weights=None)
    for index in (1, 2):
        assert set(result.models) == {"gan"}
        sent = tensors(result.models["gan"])
        assert {name.partition(".")[0] for name in sent} == {"generator", "critic"}
        updates, states = [], []
        for number in (1, 2, 3):
            states.append({name: a + rng.normal(size=a.shape).astype(np.float32) for name, a in sent.items()})
            write_file(tmp_path / f"gan-{index}-{number}", states[-1])
            updates.append(UpdateSpec(client=f"ward-{number}", prototype="gan", num_samples=number,
                                      weights=tmp_path / f"gan-{index}-{number}"))  # fmt: skip
        given = {"generator": plan, "weights": None, "gan_round": index, "gan": result.models["gan"]}
        result = generate(tmp_path, federation, f"gan-{index}", **given, updates=updates[::-1])
        expected = {name: sum(k * states[k - 1][name] for k in (1, 2, 3)) / 6 for name in sent}
    assert set(result.models) == {"generator", "discriminator"}
    assert result.metrics["input_range"] == [-1.0, 3.0]
    for name, values in tensors(result.models["generator"]).items():
        np.testing.assert_allclose(values, expected[f"generator.{name}"], rtol=1e-5, atol=1e-6)
    with pytest.raises(JobFailure) as caught:
        generate(tmp_path, federation, "nobody", **given)
    assert caught.value.code == "no_participants"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weights": None}, "generator.model"),
        ({"generator": parts.GeneratorImported(model="m", **GENERATOR, input_range=(1.0, 1.0))}, "input_range"),
        ({"generator": parts.GeneratorWganGp()}, "datasets.unlabeled"),
        ({"generator": parts.GeneratorFedGan(), "gan_round": 1}, "gan"),
    ],
)
def test_generators_that_cannot_be(tmp_path: Path, federation: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(JobFailure, match=said) as caught:
        generate(tmp_path, federation, "refused", **changes)
    assert caught.value.code == "bad_option"
