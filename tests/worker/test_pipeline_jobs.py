"""The jobs before the first round: first models, a trained generator, discriminators' scores."""

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from contract import architectures
from contract.architecture_options import DiscriminatorOptions
from contract.architectures import Entry
from contract.local import Adam
from contract.nn.codec import save_state
from contract.nn.layers import Score
from contract.nn.registry import initialise
from contract.recipes.parts import GeneratorWganGp
from contract.tensors import TensorFile, write_file
from contract.updates import FEATURES_KEY
from contract.wire.federations import Task
from worker.parts.weigh import log_odds
from worker.pipeline import run
from worker.specs import (
    Datasets,
    GeneratorSpec,
    InitializeSpec,
    JobFailure,
    JobResult,
    NetworkRef,
    Progress,
    PrototypeSpec,
    ScoreSpec,
)

TASK = Task.model_validate({"num_classes": 3, "input": {"shape": [1, 4, 4]}})
CNN: dict[str, Any] = {"architecture": "cnn-digits", "options": {"widths": [3, 4]}}


def ignore(_: Progress) -> None:
    """Take progress and do nothing with it."""


def bytes_of(result: JobResult) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in result.models.items()}


class Files:
    """Data sets and a trained network under one folder."""

    def __init__(self, root: Path):
        self.root = root
        rng = np.random.default_rng(5)
        for name, size in (("unlabeled", 21), ("test", 10)):
            inputs = rng.normal(size=(size, 1, 4, 4)).astype(np.float32)
            labels = rng.integers(0, 3, size).astype(np.int64)
            arrays: dict[str, np.ndarray] = (
                {"inputs": inputs} if name == "unlabeled" else {"inputs": inputs, "labels": labels}
            )
            write_file(root / name, arrays)
        save_state(initialise(CNN["architecture"], CNN["options"], TASK, 0), root / "cnn-ward-1")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("files"))


def test_first_models_depend_on_seed_and_prototype_name(files: Files) -> None:
    def first(name: str, seed: int) -> bytes:
        prototype = PrototypeSpec(name=name, network=NetworkRef(**CNN))
        out = files.root / f"init-{name}-{seed}"
        spec = InitializeSpec(seed=seed, task=TASK, prototypes=[prototype], output_dir=out)
        return run(spec, ignore).models[name].read_bytes()

    assert first("a", 1) == first("a", 1)
    assert len({first("a", 1), first("b", 1), first("a", 2)}) == 3


def test_an_imported_model_passes_through_and_is_measured(files: Files) -> None:
    prototype = PrototypeSpec(name="cnn", network=NetworkRef(**CNN, weights=files.root / "cnn-ward-1"))
    spec = InitializeSpec(
        seed=1, task=TASK, prototypes=[prototype], datasets=Datasets(test=files.root / "test"),
        output_dir=files.root / "import",
    )  # fmt: skip
    result = run(spec, ignore)
    with TensorFile(result.models["cnn"]) as made, TensorFile(files.root / "cnn-ward-1") as given:
        assert made.names == given.names
        assert all(made.read(name).tobytes() == given.read(name).tobytes() for name in given.names)
        assert made.header.metadata == given.header.metadata | {FEATURES_KEY: "4"}
    assert 0 <= result.metrics["accuracy"] <= 1


def test_an_imported_model_that_cannot_be_built_is_taken_without_torch(files: Files) -> None:
    given = files.root / "cnn-ward-1"
    prototype = PrototypeSpec(name="p", network=NetworkRef(architecture="custom", weights=given))
    spec = InitializeSpec(seed=1, task=TASK, prototypes=[prototype], output_dir=files.root / "taken")
    code = (
        "import sys; from worker.pipeline import run; from worker.specs import InitializeSpec\n"
        "spec = InitializeSpec.model_validate_json(sys.stdin.read())\n"
        "assert not spec.needs_networks\n"
        "print(run(spec, lambda p: None).model_dump_json())\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=spec.model_dump_json(),
        text=True,
        check=True,
        timeout=60,
        capture_output=True,
    )
    result = JobResult.model_validate_json(done.stdout)
    assert result.models["p"].read_bytes() == given.read_bytes()
    assert result.metrics["networks"] == {}


def test_an_imported_model_beside_one_that_is_built_is_taken_as_it_is(files: Files) -> None:
    given = files.root / "cnn-ward-1"
    custom = PrototypeSpec(name="p", network=NetworkRef(architecture="custom", weights=given))
    drawn = PrototypeSpec(name="q", network=NetworkRef(**CNN))
    spec = InitializeSpec(seed=1, task=TASK, prototypes=[custom, drawn], output_dir=files.root / "beside")
    assert spec.needs_networks
    assert run(spec, ignore).models["p"].read_bytes() == given.read_bytes()


@pytest.mark.parametrize(
    ("network", "code"),
    [
        ({"architecture": "custom"}, "bad_option"),
        ({"architecture": "mlp", "weights": "cnn-ward-1"}, "schema_mismatch"),
        ({"architecture": "cnn-digits", "options": {"width": 3}}, "bad_option"),
    ],
    ids=["custom-without-model", "other-network", "unknown-option"],
)
def test_first_models_that_cannot_be(files: Files, network: dict[str, Any], code: str) -> None:
    if "weights" in network:
        network = network | {"weights": files.root / network["weights"]}
    prototype = PrototypeSpec(name="p", network=NetworkRef(**network))
    spec = InitializeSpec(seed=1, task=TASK, prototypes=[prototype], output_dir=files.root / "refused")
    with pytest.raises(JobFailure) as caught:
        run(spec, ignore)
    assert caught.value.code == code


def generator_spec(files: Files, out: str, steps: int) -> GeneratorSpec:
    plan = GeneratorWganGp(
        options={"latent": 4, "hidden": [8]}, critic_options={"hidden": [8]}, steps=steps, critic_steps=2, batch_size=8,
        optimizer=Adam(lr=1e-3, betas=(0.0, 0.9)),
    )  # fmt: skip
    discriminator = NetworkRef(architecture="disc-mlp", options={"hidden": [4]})
    return GeneratorSpec(
        discriminator=discriminator,
        seed=3,
        task=TASK,
        generator=plan,
        unlabeled=files.root / "unlabeled",
        output_dir=files.root / out,
    )


def test_generator_is_seeded_and_zero_steps_leave_it_as_initialised(files: Files) -> None:
    trained = run(generator_spec(files, "gen-a", 3), ignore)
    again = run(generator_spec(files, "gen-b", 3), ignore)
    untouched = run(generator_spec(files, "gen-0", 0), ignore)
    assert bytes_of(trained) == bytes_of(again)
    assert bytes_of(trained)["generator"] != bytes_of(untouched)["generator"]
    with TensorFile(trained.models["discriminator"]) as file:
        assert file.info("1.weight").shape == (4, 16)
    with TensorFile(files.root / "unlabeled") as file:
        inputs = file.read("inputs")
    assert trained.metrics["input_range"] == [float(inputs.min()), float(inputs.max())]
    assert [step for step, _ in trained.metrics["critic"]] == [1, 2, 3]
    assert untouched.metrics["critic"] == []


def score_spec(files: Files, out: str, discriminators: dict[str, Path]) -> ScoreSpec:
    return ScoreSpec(
        task=TASK, architecture="disc-mlp", options={"hidden": [4]}, discriminators=discriminators,
        input_range=(-4.0, 4.0), output_dir=files.root / out,
        datasets=Datasets(unlabeled=files.root / "unlabeled", test=files.root / "test"),
    )  # fmt: skip


def test_scores_are_those_of_the_network_on_scaled_inputs(files: Files) -> None:
    module = initialise("disc-mlp", {"hidden": [4]}, TASK, 9)
    save_state(module, files.root / "disc")
    result = run(score_spec(files, "scores", {"ward-1": files.root / "disc"}), ignore)
    with TensorFile(files.root / "unlabeled") as file:
        inputs = torch.from_numpy(file.read("inputs"))
    with torch.no_grad():
        expected = module(inputs / 4).numpy()
    with TensorFile(result.models["ward-1"]) as file:
        assert {name: file.info(name).shape for name in file.names} == {"unlabeled": (21,), "test": (10,)}
        np.testing.assert_allclose(file.read("unlabeled"), expected, rtol=1e-5, atol=1e-6)


def test_scores_of_a_discriminator_with_output_probability_weigh_as_its_raw_ones(files: Files) -> None:
    save_state(initialise("disc-mlp", {"hidden": [4]}, TASK, 9), files.root / "disc")
    found = {}
    for output in ("score", "probability"):
        spec = score_spec(files, f"scores-{output}", {"ward-1": files.root / "disc"})
        result = run(spec.model_copy(update={"options": {"hidden": [4], "output": output}}), ignore)
        with TensorFile(result.models["ward-1"]) as file:
            found[output] = file.read("unlabeled")
    assert ((found["probability"] > 0) & (found["probability"] < 1)).all()
    np.testing.assert_allclose(
        log_odds(found["probability"], "prob"), log_odds(found["score"], "sigmoid"), rtol=1e-5, atol=1e-5
    )


def test_a_discriminator_outside_0_and_1_is_rejected_and_the_others_are_scored(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package's network that offers `output` and does not obey: one linear layer, which here gives its bias."""
    nets = types.ModuleType("acme_nets")
    nets.linear = lambda options, task: nn.Sequential(nn.Flatten(), nn.Linear(16, 1), Score("score"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "acme_nets", nets)
    row = Entry("acme-linear", "discriminator", DiscriminatorOptions, "no sigmoid", builder="acme_nets:linear")
    monkeypatch.setattr(architectures, "CATALOGUE", {**architectures.CATALOGUE, row.name: row})
    given = {"ward-1": 0.0, "ward-2": 1.5, "ward-3": -0.25, "ward-4": 1.0}
    for client, bias in given.items():
        module = initialise("acme-linear", {}, TASK, 9)
        with torch.no_grad():
            module[1].weight.zero_()  # type: ignore[index]
            module[1].bias.fill_(bias)  # type: ignore[index]
        save_state(module, files.root / client)
    spec = score_spec(files, "scores-outside", {client: files.root / client for client in given})
    update = {"architecture": "acme-linear", "options": {"output": "probability"}}
    result = run(spec.model_copy(update=update), ignore)
    assert set(result.models) == {"ward-1", "ward-4"}
    assert set(result.metrics["rejected"]) == {"ward-2", "ward-3"}
    assert result.metrics["rejected"]["ward-2"].startswith(
        "out_of_range: discriminator of 'ward-2': gives values from 1.5 to 1.5 on the unlabeled set"
    )


def test_a_discriminator_that_is_not_finite_is_rejected_and_the_others_are_scored(files: Files) -> None:
    module = initialise("disc-mlp", {"hidden": [4]}, TASK, 9)
    save_state(module, files.root / "disc-sound")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(1e30)
    save_state(module, files.root / "disc-broken")
    both = {"ward-7": files.root / "disc-broken", "ward-8": files.root / "disc-sound"}
    result = run(score_spec(files, "scores-broken", both), ignore)
    assert set(result.models) == {"ward-8"}
    assert set(result.metrics["rejected"]) == {"ward-7"}
    assert result.metrics["rejected"]["ward-7"].startswith("non_finite: ")
