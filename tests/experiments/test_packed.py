"""Experiments on data sets that are not part of potstill: a tiny folder of the same form, and none at all."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from experiments.evidence import packed
from experiments.evidence import page as pages
from experiments.evidence import run as running
from experiments.evidence.run import EXPERIMENTS, Experiment, run
from potstill.console import CliError

TINY = {"clients": 3, "clients_per_round": 2, "rounds": 2, "samples": 90, "server_samples": 40, "test_samples": 40}
MORE = {"local": {"epochs": 1}, "smallest": 5}
KEYS = [key for key, each in EXPERIMENTS.items() if each.packed]


def write_images(path: Path, count: int, shape: tuple[int, ...], seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = np.arange(count) % 10
    images = random.integers(0, 60, (count, *shape), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:, 2 * label : 2 * label + 2] += 190
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"images": images, "labels": labels.astype(np.uint8)}, path)


def write_texts(path: Path, count: int) -> None:
    words = ("war", "match", "market", "chip")
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as out:
        out.writelines(json.dumps({"text": f"a {words[n % 4]} {n}", "label": n % 4}) + "\n" for n in range(count))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of all three sets, as `docs/simulate.md` describes it."""
    root = tmp_path / "sets"
    write_images(root / "mnist" / "train-60k.safetensors", 200, (1, 28, 28), 0)
    write_images(root / "mnist" / "test-10k.safetensors", 60, (1, 28, 28), 1)
    write_images(root / "cifar10" / "train-clients-24k.safetensors", 120, (3, 32, 32), 2)
    write_images(root / "cifar10" / "train-server-7k.safetensors", 60, (3, 32, 32), 3)
    write_images(root / "cifar10" / "test-a-5k.safetensors", 60, (3, 32, 32), 4)
    write_texts(root / "agnews" / "train-10k.jsonl.gz", 200)
    write_texts(root / "agnews" / "test.jsonl.gz", 60)
    return root


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    gan = {"discriminators.plan.epochs": 1, "discriminators.generator.steps": 1}
    small = {
        key: replace(each, plan={**each.plan, **TINY, **MORE}, gan=gan if each.gan else {}, distil=1)
        for key, each in packed.COMPARISONS.items()
    }
    monkeypatch.setattr(packed, "COMPARISONS", small)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("key", KEYS)
def test_a_data_set_is_compared_and_its_figures_reported(key: str, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "evidence.md"
    assert run([key], 1, 10, tmp_path / "report", page, folder) == 0
    text = pages.read(page)[pages.TITLES[key]]
    recipes = packed.COMPARISONS[key].recipes
    for name in recipes:
        assert f"| {packed.LABELS[name]}, mean of the rounds | – |" in text
    assert "- FedDF above FedAvg: " in text
    assert ("FedGO" in text) == ("fedgo-small" in recipes)
    assert f"![accuracy per round on {packed.COMPARISONS[key].what}](img/evidence-{key}.png)" in text
    assert (page.parent / "img" / f"evidence-{key}.png").stat().st_size > 5_000
    assert str(folder) not in page.read_text()
    assert pages.TITLES[key] not in pages.read(page)[pages.SUMMARY]  # nothing is judged


def test_without_the_folder_a_line_says_so_and_earlier_figures_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POTSTILL_DATA_DIR", raising=False)
    packed_only: dict[str, Experiment] = {key: EXPERIMENTS[key] for key in KEYS}
    monkeypatch.setattr(running, "EXPERIMENTS", packed_only)
    page = tmp_path / "evidence.md"
    pages.write(page, {"mnist": "Earlier figures.\n"})
    assert run([], None, 10, tmp_path / "report", page, tmp_path / "nothing") == 0
    sections = pages.read(page)
    assert sections[pages.TITLES["mnist"]] == "Earlier figures.\n"
    assert sections[pages.TITLES["cifar10"]].startswith("Not run: CIFAR-10 is not part of potstill; name a folder")
    assert "POTSTILL_DATA_DIR" in sections[pages.TITLES["agnews"]]
    assert str(tmp_path) not in page.read_text()


def test_an_experiment_that_is_asked_for_needs_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POTSTILL_DATA_DIR", raising=False)
    with pytest.raises(CliError, match="mnist is not part of potstill; name the folder that has it with --data-dir"):
        run(["mnist"], 1, 10, tmp_path, tmp_path / "page.md")
    assert not (tmp_path / "page.md").exists()


def test_what_held_and_what_did_not_is_said() -> None:
    said = packed.findings({"A": [0.5, 0.5], "B": [0.6, 0.7], "C": [0.7, 0.6]}).splitlines()
    assert said == [
        "- B above A: held with every seed (+15.0 points, in 2 of 2 seeds).",
        "- C above A: held with every seed (+15.0 points, in 2 of 2 seeds).",
        "- C above B: **did not hold** (+0.0 points, in 1 of 2 seeds).",
    ]
    assert packed.findings({"A": [0.5], "B": [0.6]}) == (
        "- B above A: ahead with the one seed, which decides nothing (+10.0 points)."
    )
