"""Samples that every round draws anew, and what the clients' discriminators say of them (DaFKD)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.nn.codec import save_state
from contract.nn.registry import initialise
from contract.recipes import presets
from contract.seeds import derive_seed
from tests.reference import ensembles as slow
from worker.pipeline import drawing
from worker.pipeline.drawing import round_set, score_round
from worker.pipeline.job import Round
from worker.pipeline.updates import receive
from worker.specs import DrawnSpec, JobFailure, NetworkRef, ScorerSpec

COUNT, SPAN = 13, (-2.0, 4.0)
GENERATOR: dict[str, Any] = {"architecture": "gen-mlp", "options": {"latent": 3, "hidden": [5]}}
DISCRIMINATOR: dict[str, Any] = {"architecture": "disc-mlp", "options": {"hidden": [4]}}
OPTIONS: dict[str, Any] = {
    "schedule": {"epochs": 1, "batch_size": 8},
    "data": {"kind": "generated", "count": COUNT, "fresh": True},
    "weigh": {"kind": "dafkd"},
}


def network(folder: Path, name: str, ref: dict[str, Any], seed: int, task: Any) -> Path:
    save_state(initialise(ref["architecture"], ref["options"], task, seed), folder / name)
    return folder / name


def drawn(world: Any, scored: bool = True) -> DrawnSpec:
    generator = network(world.root, "generator", GENERATOR, 50, world.task)
    found = {name: network(world.root, f"d-{name}", DISCRIMINATOR, k, world.task) for k, name in enumerate(world.names)}
    return DrawnSpec(
        generator=NetworkRef(**GENERATOR, weights=generator),
        input_range=SPAN,
        scorer=ScorerSpec(**DISCRIMINATOR, input_range=SPAN) if scored else None,
        discriminators=found if scored else {},
    )


def samples(world: Any, round_index: int) -> torch.Tensor:
    """Return what a round draws, by hand."""
    random = torch.Generator().manual_seed(derive_seed(3, "samples", round_index))
    noise = torch.randn(COUNT, 3, generator=random)
    module = initialise(GENERATOR["architecture"], GENERATOR["options"], world.task, 50).eval()
    with torch.no_grad():
        unit: torch.Tensor = module(noise)
    return (unit + 1) * 3.0 - 2.0


def begun(spec: Any) -> Round:
    spec.output_dir.mkdir(exist_ok=True)
    job = Round.begin(spec, lambda _: None, "cpu")
    receive(job)
    return job


def test_each_round_draws_its_own_samples_and_the_same_round_the_same(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedgo-small", OPTIONS))
    found = {}
    for index in (1, 2):
        spec = world.spec("drawn", drawn=drawn(world), round_index=index)
        first, again = (round_set(Round.begin(spec, lambda _: None, "cpu")) for _ in range(2))
        torch.testing.assert_close(first, samples(world, index), rtol=1e-6, atol=1e-6)
        assert torch.equal(first, again)
        found[index] = first
    assert not torch.equal(found[1], found[2])


def test_discriminators_score_the_rounds_own_samples(tmp_path: Path, federation: Any, tensors: Any) -> None:
    world = federation(tmp_path, presets.build("fedgo-small", OPTIONS))
    job = begun(world.spec("scored", drawn=drawn(world), round_index=2))
    before = {name: tensors(path)["test"] for name, path in job.spec.scores.items()}
    score_round(job)
    inputs = (samples(world, 2) + 2.0) / 3.0 - 1.0
    for k, name in enumerate(world.names):
        module = initialise(DISCRIMINATOR["architecture"], DISCRIMINATOR["options"], world.task, k).eval()
        with torch.no_grad():
            expected = module(inputs).numpy()
        scores = tensors(job.scores[name])
        np.testing.assert_allclose(scores["unlabeled"], expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(scores["test"], before[name])


def test_a_round_weighs_teachers_by_what_they_say_of_its_samples(
    tmp_path: Path, federation: Any, tensors: Any, repeatable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = federation(tmp_path, presets.build("fedgo-small", OPTIONS))
    source, plain = drawn(world), world.spec
    monkeypatch.setattr(world, "spec", lambda *given, **changes: plain(*given, drawn=source, **changes))
    result = repeatable(world)
    job = begun(world.spec("again"))
    score_round(job)
    rows = [[slow.sigmoid(float(a)) for a in tensors(job.scores[name])["unlabeled"]] for name in world.names]
    expected = np.mean(slow.dafkd(rows), axis=1)
    made = [result.metrics["teacher_weights"][name] for name in world.names]
    np.testing.assert_allclose(made, expected, rtol=1e-6)
    assert result.metrics["teacher_forwards"] == len(world.names) * COUNT


def test_samples_without_a_weighting_that_reads_scores_need_no_discriminators(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedgo-small", OPTIONS | {"weigh": {"kind": "uniform"}}))
    result = world.round(drawn=drawn(world, scored=False), datasets=world.datasets.model_copy(update={"test": None}))
    assert result.metrics["ensemble"]["teachers"] == len(world.names)


def test_who_gives_no_number_is_named(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedgo-small", OPTIONS))
    source = drawn(world)
    bad = initialise(DISCRIMINATOR["architecture"], DISCRIMINATOR["options"], world.task, 9)
    with torch.no_grad():
        next(bad.parameters()).fill_(float("nan"))
    save_state(bad, source.discriminators["ward-2"])
    with pytest.raises(JobFailure, match="discriminator of 'ward-2'") as caught:
        world.round(drawn=source)
    assert (caught.value.code, caught.value.client) == ("non_finite", "ward-2")


def test_what_is_missing_is_said(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedgo-small", OPTIONS))
    with pytest.raises(JobFailure, match="needs the generator"):
        world.round()
    alone = drawn(world).model_copy(update={"discriminators": {}})
    with pytest.raises(JobFailure, match="the discriminator of 'ward-1' is not here"):
        world.round(drawn=alone)


def test_a_fixed_set_is_read_and_not_drawn(tmp_path: Path, federation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = presets.build("fedgo-small", OPTIONS | {"data": {"kind": "generated", "count": 21}})
    world = federation(tmp_path, recipe)
    monkeypatch.setattr(drawing, "draw", lambda *_: pytest.fail("drawn"))
    job = begun(world.spec("fixed", drawn=drawn(world)))
    score_round(job)
    assert len(round_set(job)) == 21 and job.scores == job.spec.scores
