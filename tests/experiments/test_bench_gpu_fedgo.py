"""The GPU bench from end to end, smaller than its toy."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.bench import gpu_fedgo as bench


def test_a_race_leaves_curves_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = replace(
        bench.TOY, clients=2, epochs=1, discriminator_epochs=1, server_epochs=1, train=60, server=16, test=20
    )
    monkeypatch.setattr(bench, "TOY", tiny)
    monkeypatch.setattr(sys, "argv", ["gpu_fedgo.py", "--toy", "--out", str(tmp_path)])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        bench.main()
    finally:
        torch.set_num_threads(threads)
    found = json.loads((tmp_path / "curve.json").read_text())
    assert set(found["curves"]) == {"fedgo", "feddf", "fedavg"}
    for method, curve in found["curves"].items():
        assert len(curve["accuracy"]) == tiny.rounds
        assert len(curve["ensembles"]) == (0 if method == "fedavg" else tiny.rounds)
    first = [found["curves"][method] for method in ("fedgo", "feddf", "fedavg")]
    assert len({curve["average"][0] for curve in first}) == 1  # the first round's client models are everybody's
    assert first[0]["ensembles"][0] == first[1]["ensembles"][0]
    assert set(first[0]["ensembles"][0]) == set(bench.WEIGHTINGS)
    assert (tmp_path / "accuracy.png").exists()
    assert (tmp_path / "ensembles.png").exists()
