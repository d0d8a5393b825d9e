"""What a worker notes of where a result comes from."""

from pathlib import Path
from typing import Any

from contract.recipes.recipe import Recipe
from contract.seeds import derive_seed, noting_seeds
from contract.wire.federations import Task
from worker.origin import code, traced
from worker.specs import JobResult, NetworkRef, PrototypeSpec, RoundSpec

HEX = "ab" * 32


def spec(tmp_path: Path, **changes: Any) -> RoundSpec:
    network = NetworkRef(architecture="mlp", weights=tmp_path / "blobs" / HEX[:2] / HEX)
    return RoundSpec(
        seed=3,
        round_index=1,
        rounds_total=1,
        task=Task.model_validate({"num_classes": 2, "input": {"shape": [2]}}),
        recipe=Recipe(name="mine"),
        prototypes=[PrototypeSpec(name="main", network=network)],
        updates=[],
        output_dir=tmp_path,
        **changes,
    )


def test_blobs_are_named_by_digest_and_no_path_of_this_machine_is_told(tmp_path: Path) -> None:
    state = {"momentum": tmp_path / HEX, "other": Path("simulated.safetensors")}
    result = traced(spec(tmp_path, state=state), "cpu", lambda: JobResult(models={}))
    assert result.origin is not None
    told = result.origin["spec"]
    assert told["prototypes"][0]["network"]["weights"] == f"sha256-{HEX}"
    assert told["state"] == {"momentum": f"sha256-{HEX}", "other": "simulated.safetensors"}
    assert "output_dir" not in told
    assert str(tmp_path) not in str(result.origin)
    assert told["recipe"]["name"] == "mine"


def test_seeds_are_noted_by_name_once_and_only_inside(tmp_path: Path) -> None:
    def work() -> JobResult:
        for _ in range(3):
            derive_seed(3, "round", 1, "distil", "main")
        derive_seed(9, "noise")
        return JobResult(models={})

    derive_seed(3, "before")
    result = traced(spec(tmp_path), "cpu", work)
    assert result.origin is not None
    assert result.origin["seeds"] == [["round", 1, "distil", "main"], ["noise"]]


def test_noting_seeds_is_bounded_and_changes_none() -> None:
    with noting_seeds() as noted:
        made = [derive_seed(1, "step", number) for number in range(1500)]
    assert len(noted) == 1000
    assert made == [derive_seed(1, "step", number) for number in range(1500)]


def test_code_and_machine_are_named(tmp_path: Path) -> None:
    result = traced(spec(tmp_path), "cpu", lambda: JobResult(models={}))
    assert result.origin is not None
    assert result.origin["code"] == code()
    assert len(result.origin["code"]["digest"]) == 71
    assert set(result.origin["environment"]["libraries"]) == {"numpy", "torch", "safetensors", "ml_dtypes"}
    assert result.origin["environment"]["device"] == "cpu"
