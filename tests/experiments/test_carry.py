"""How far Reflux carries, by the product: a setting's arms, what they share, and texts as vectors."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from experiments import carry

QUICK = {
    "discriminators.generator.steps": 1, "discriminators.plan.epochs": 1, "schedule.epochs": 1,
}  # fmt: skip
SMALL = {
    "data": "digits", "clients": 3, "clients_per_round": 2, "rounds": 1, "alpha": 1.0, "samples": 60,
    "server_samples": 40, "test_samples": 40, "local": {"epochs": 1},
}  # fmt: skip


def test_a_setting_is_run_once_and_its_arms_share_what_comes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = (carry.PLAIN, carry.REFLUX)
    quick = {arm: {**carry.ARMS[arm], "options": _quick(carry.ARMS[arm]["options"])} for arm in arms}
    monkeypatch.setattr(carry, "ARMS", quick)
    monkeypatch.setattr(carry, "SETTINGS", {"small": SMALL})
    found = carry.measure("small", arms, [4], tmp_path, tmp_path)
    assert set(found) == set(arms) and all(len(runs) == 1 and len(runs[0]) == 1 for runs in found.values())
    folders = [tmp_path / "small" / "seed-4" / name for name in ("FedGO_plain", "Reflux")]
    one, other = (sorted((folder / "score").rglob("*.safetensors")) for folder in folders)
    assert one and [each.read_bytes() for each in one] == [each.read_bytes() for each in other]
    assert carry.measure("small", arms, [4], tmp_path, tmp_path) == found


def _quick(options: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in options.items() if key != "schedule"} | QUICK


def test_texts_become_vectors(tmp_path: Path) -> None:
    (tmp_path / "agnews").mkdir()
    words = (("goal match team", 1), ("stocks market bank", 2), ("goal team win", 1), ("market fell stocks", 2))
    with gzip.open(tmp_path / "agnews" / "train-10k.jsonl.gz", "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps({"text": text, "label": label}) + "\n" for text, label in words)
    with np.load(carry.vectors(tmp_path, tmp_path / "a" / "made.npz", size=2)) as made:
        values, labels = made["x"], made["y"]
    assert values.shape == (4, 2) and values.dtype == np.float32 and labels.tolist() == [1, 2, 1, 2]
    np.testing.assert_allclose(values.std(axis=0), 1, rtol=1e-5)
    apart = np.linalg.norm(values[0] - values[1])
    assert np.linalg.norm(values[0] - values[2]) < apart, "texts of one topic are nearer"
