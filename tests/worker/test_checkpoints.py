"""Checkpoints: a job that was killed anywhere, any number of times, ends in the same bytes as one that was not."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.local import Adam
from contract.nn.codec import save_state
from contract.nn.registry import initialise
from contract.recipes.parts import GeneratorWganGp
from contract.recipes.presets import build
from contract.tensors import write_file
from contract.wire.federations import Task
from worker.checkpoints import Checkpoints, Stopped, key_of
from worker.parts.resume import (
    module_arrays,
    optimizer_arrays,
    restore_module,
    restore_optimizer,
)
from worker.pipeline import run
from worker.specs import (
    Datasets,
    GeneratorSpec,
    JobResult,
    JobSpec,
    NetworkRef,
    Progress,
    ScoreSpec,
)

TASK = Task.model_validate({"num_classes": 3, "input": {"shape": [1, 4, 4]}})
HEAD: dict[str, Any] = {"architecture": "mlp", "options": {"hidden": [4], "common_head": True}}
ADAM = {"optimizer": {"kind": "adam", "lr": 0.01, "betas": [0.9, 0.99], "weight_decay": 0.01}}
SGD = {"optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.001}}
STOP = {"early_stop": {"eval_every": 2, "patience": 6}}
AUGMENT = {"kind": "unlabeled", "augment": {"flip": True, "pad": 1}}
RECIPES: dict[str, Any] = {
    "adam, cosine, augmented": build("feddf", {"schedule": {"steps": 14, "batch_size": 8, **ADAM}, "data": AUGMENT}),
    "momentum, clipped": build("feddf", {"schedule": {"steps": 14, "batch_size": 8, "clip_norm": 1.0, **SGD}}),
    "early stopping": build("feddf", {"schedule": {"steps": 14, "batch_size": 8, **ADAM, **STOP}}),
    "posterior and SWA": build("fedbe", {"schedule": {"steps": 14, "batch_size": 8}}),
    "consensus": build("fedet", {"schedule": {"steps": 6, "batch_size": 8}}),
    "odds": build("fedgo-small", {"schedule": {"steps": 6, "batch_size": 8}}),
    "groups over rounds": build("fedsdd", {"schedule": {"steps": 6, "batch_size": 8}}),
}


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the pipeline may catch it."""


def killer(at: int) -> tuple[Callable[[Progress], None], list[Progress]]:
    """Return a report that kills at its `at`-th call, and what it was told."""
    told: list[Progress] = []

    def report(progress: Progress) -> None:
        told.append(progress)
        if len(told) == at:
            raise Killed

    return report, told


def figures(result: JobResult) -> dict[str, Any]:
    """Return what must be the same: bytes of every file, and every figure but times."""
    files = {**result.models, **{f"state {name}": path for name, path in (result.state or {}).items()}}
    metrics = {key: value for key, value in result.metrics.items() if key != "seconds"}
    return {"metrics": json.loads(json.dumps(metrics))} | {name: path.read_bytes() for name, path in files.items()}


def attempt(spec: JobSpec, folder: Path, fence: int, at: int) -> tuple[JobResult | None, list[Progress]]:
    """Run until the `at`-th report; return the result, if it came to that, and what was reported."""
    shutil.rmtree(spec.output_dir, ignore_errors=True)
    report, told = killer(at)
    try:
        kept = Checkpoints(folder, key_of(spec, "cpu", 1), fence, 0.0, clock=lambda: 0.0)  # due after every step
        return run(spec, report, checkpoints=kept), told
    except Killed:
        return None, told


def check(spec: JobSpec, root: Path, steps: int) -> None:
    """Kill the job at many points, and at several in a row; it must end as the undisturbed one did."""
    report, told = killer(0)
    wanted = figures(run(spec, report))
    for at in range(2, len(told) + 1, max(1, len(told) // steps)):
        folder = root / f"kept-{at}"
        assert attempt(spec, folder, 1, at)[0] is None
        result, again = attempt(spec, folder, 2, 0)
        assert result is not None and figures(result) == wanted, f"killed at {told[at - 1]}"
        redone = [each for each in again if not each.resumed]
        if told[at - 1].step > 1 and told[at - 1].phase not in ("distances", "average"):
            assert len(redone) < len(told), f"nothing was saved before {told[at - 1]}"
    first = next(index for index, each in enumerate(told) if each.phase not in ("distances", "average", "validate"))
    fence, result = 0, None
    while result is None:  # a little further each time: a life of nothing but kills
        fence += 1
        assert fence < 40, "it gets nowhere"
        result, _ = attempt(spec, root / "often", fence, first + 9)
    assert figures(result) == wanted
    assert fence > 1 or len(told) < first + 9


@pytest.mark.parametrize("name", RECIPES)
def test_a_round_killed_anywhere(name: str, tmp_path: Path, federation: Any) -> None:
    networks = ({"main": HEAD}, HEAD) if name == "consensus" else (None, None)
    world = federation(tmp_path, RECIPES[name], None, *networks)
    if name == "groups over rounds":
        world.round()
    check(world.spec("out"), tmp_path, 4)


def test_two_students_of_one_labelling(tmp_path: Path, federation: Any) -> None:
    two = {
        "small": {"architecture": "cnn-digits", "options": {"widths": [3, 4]}},
        "other": {"architecture": "mlp", "options": {"hidden": [5]}},
    }
    recipe = build("feddf", {"schedule": {"steps": 8, "batch_size": 8, **ADAM}})
    world = federation(tmp_path, recipe, None, two)
    spec = world.spec("out")
    check(spec, tmp_path, 4)
    _, told = attempt(spec, tmp_path / "late", 1, 0)
    last = max(index for index, each in enumerate(told, start=1) if each.phase == "distil other" and each.step == 5)
    first = max(index for index, each in enumerate(told, start=1) if each.phase == "distil small" and each.step == 5)
    folder = tmp_path / "later"
    attempt(spec, folder, 1, max(first, last))
    result, again = attempt(spec, folder, 2, 0)
    assert result is not None
    taken = {each.phase: each.step for each in again if each.resumed}
    assert taken["label"] == 5 and len(taken) == 3, "labels and the first student are not made anew"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(5)
    write_file(root / "unlabeled", {"inputs": rng.normal(size=(21, 1, 4, 4)).astype(np.float32)})
    for seed in range(4):
        save_state(initialise("disc-mlp", {"hidden": [4]}, TASK, seed), root / f"disc-{seed}")
    return root


def generator(root: Path, out: Path, **changes: Any) -> GeneratorSpec:
    plan = GeneratorWganGp(
        architecture="gen-mlp",
        options={"latent": 3, "hidden": [8]},
        critic_architecture="disc-mlp",
        critic_options={"hidden": [8]},
        steps=20,
        critic_steps=2,
        batch_size=8,
        optimizer=Adam(lr=1e-3, betas=(0.5, 0.9)),
    )
    fields: dict[str, Any] = {
        "seed": 3,
        "task": TASK,
        "generator": plan,
        "discriminator": NetworkRef(architecture="disc-mlp", options={"hidden": [4]}),
        "unlabeled": root / "unlabeled",
        "output_dir": out,
    }
    return GeneratorSpec(**(fields | changes))


def test_a_generator_killed_anywhere(files: Path, tmp_path: Path) -> None:
    check(generator(files, tmp_path / "out"), tmp_path, 4)


def test_scores_killed_anywhere(files: Path, tmp_path: Path) -> None:
    clients = {f"ward-{seed}": files / f"disc-{seed}" for seed in range(4)}
    write_file(tmp_path / "broken", {"x": np.zeros(3, np.float32)})
    spec = ScoreSpec(
        task=TASK,
        architecture="disc-mlp",
        options={"hidden": [4]},
        discriminators={**clients, "ward-1b": tmp_path / "broken"},
        input_range=(-3.0, 3.0),
        datasets=Datasets(unlabeled=files / "unlabeled"),
        output_dir=tmp_path / "out",
    )
    check(spec, tmp_path, 4)


# ------------------------------------------------------------------------------------------------------------- files
def one(folder: Path, key: str = "k", fence: int = 1, step: int = 3, **options: Any) -> Checkpoints:
    made = Checkpoints(folder, key, fence, **options)
    made.save("distil ü/../x", step, {"a": np.arange(step)}, {"n": step})
    return made


def test_what_was_written_is_found_by_another_attempt(tmp_path: Path) -> None:
    one(tmp_path / "job")
    later = Checkpoints(tmp_path / "job", "k", 2)
    saved = later.load("distil ü/../x")
    assert saved is not None
    assert (saved.step, saved.notes, saved.arrays["a"].tolist()) == (3, {"n": 3}, [0, 1, 2])
    assert later.resumed is not None and later.resumed.step == 3
    assert later.load("label") is None
    assert [path.parent for path in (tmp_path / "job").rglob("*")] == [tmp_path / "job"], "one file, no folders"


def test_a_state_of_other_inputs_is_never_used(tmp_path: Path) -> None:
    one(tmp_path, key="this recipe")
    assert Checkpoints(tmp_path, "that recipe", 2).load("distil ü/../x") is None


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "renamed"])
def test_a_damaged_state_is_passed_over_with_a_warning(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one(tmp_path, fence=1, step=2)
    newest = one(tmp_path / "other", fence=2, step=5)
    assert newest.folder is not None
    (path,) = newest.folder.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[-3] ^= 1
    path.unlink()
    target = tmp_path / (path.name[:-20] + "0" * 8 + ".safetensors" if damage == "renamed" else path.name)
    target.write_bytes(content[:-1] if damage == "cut" else b"" if damage == "emptied" else bytes(content))
    with caplog.at_level(logging.WARNING):
        saved = Checkpoints(tmp_path, "k", 3).load("distil ü/../x")
    assert saved is not None and saved.step == 2, "the older one is sound"
    assert "damaged" in caplog.text


def test_a_worker_that_lost_its_job_disturbs_nobody(tmp_path: Path) -> None:
    """It wakes up and goes further than its successor: its state is under its own token, and the newer one stays."""
    old = one(tmp_path, fence=1, step=3)
    one(tmp_path, fence=2, step=4)
    old.save("distil ü/../x", 900, {"a": np.arange(900)}, {})
    saved = Checkpoints(tmp_path, "k", 3).load("distil ü/../x")
    assert saved is not None and saved.step == 4


def test_the_folder_stays_small(tmp_path: Path) -> None:
    made = one(tmp_path)
    (tmp_path / ".part-0000000001-killed").write_bytes(b"half")
    for step in range(4, 20):
        made.save("distil ü/../x", step, {"a": np.arange(step)}, {})
    one(tmp_path, fence=2, step=30)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_state_that_is_too_large_or_cannot_be_written_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one(tmp_path / "small", max_bytes=10)
    assert not (tmp_path / "small").exists() and "at most 10" in caplog.text
    (tmp_path / "file").write_text("in the way")
    one(tmp_path / "file")
    assert "no checkpoint of" in caplog.text


def test_when_it_is_due(tmp_path: Path) -> None:
    now = [0.0]
    made = Checkpoints(tmp_path, "k", 1, 20.0, clock=lambda: now[0])
    made.complete("label", 5, lambda: ({"a": np.zeros(1)}, {}))
    assert not made.due() and list(tmp_path.iterdir()) == [], "a phase of a moment is not worth a file"
    now[0] = 20.0
    assert made.due()

    def slow() -> tuple[dict[str, Any], dict[str, Any]]:
        now[0] += 7.0
        return {"b": np.zeros(1)}, {}

    made.complete("distil", 1, slow)
    assert len(list(tmp_path.iterdir())) == 2, "what had waited is written too"
    now[0] += 69.0
    assert not made.due(), "after a write of 7 s, 70 s of work"
    now[0] += 1.0
    assert made.due()
    assert not Checkpoints(None).due()


def test_asked_to_stop_it_writes_and_ends(tmp_path: Path) -> None:
    made = Checkpoints(tmp_path, "k", 1, 1e9)
    assert not made.due()
    made.asked = True
    assert made.due()
    with pytest.raises(Stopped):
        made.save("distil", 4, {"a": np.zeros(1)}, {})
    assert Checkpoints(tmp_path, "k", 2).load("distil") is not None


def test_the_key_is_of_contents_and_not_of_places(files: Path, tmp_path: Path) -> None:
    key = key_of(generator(files, tmp_path / "a"), "cpu", 1)
    moved = shutil.copyfile(files / "unlabeled", tmp_path / "moved")
    assert key_of(generator(files, tmp_path / "b", unlabeled=moved), "cpu", 1) == key
    with moved.open("ab") as file:
        file.write(b"x")
    others = [
        key_of(generator(files, tmp_path / "b", unlabeled=moved), "cpu", 1),
        key_of(generator(files, tmp_path / "b", seed=4), "cpu", 1),
        key_of(generator(files, tmp_path / "b"), "cuda", 1),
        key_of(generator(files, tmp_path / "b"), "cpu", 2),
    ]
    assert len({key, *others}) == 5


def test_an_optimiser_gets_its_memory_back_in_its_parameters_layout() -> None:
    def made() -> tuple[torch.nn.Conv2d, torch.optim.Optimizer]:
        torch.manual_seed(1)
        module = torch.nn.Conv2d(3, 8, 3)
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return module, torch.optim.Adam(module.parameters(), lr=0.1)

    module, optimizer = made()
    inputs = torch.rand(2, 3, 5, 5)
    for _ in range(3):
        optimizer.zero_grad()
        module(inputs).square().sum().backward()
        optimizer.step()
    arrays, notes = optimizer_arrays(optimizer)
    twin, other = made()
    restore_module(twin, module_arrays(module))
    restore_optimizer(other, arrays, notes)
    moments = other.state[twin.weight]["exp_avg"]
    assert moments.stride() == twin.weight.stride() == optimizer.state[module.weight]["exp_avg"].stride()
    for model, step in ((module, optimizer), (twin, other)):
        step.zero_grad()
        model(inputs).square().sum().backward()
        step.step()
    assert torch.equal(module.weight, twin.weight)
