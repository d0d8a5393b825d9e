"""The bench of a GPU from end to end, tiny and on the CPU."""

import json
from pathlib import Path

import pytest
import torch

from experiments.bench import gpu


def test_all_parts_are_measured_against_plain_loops_and_the_chip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        gpu.main(["--device", "cpu", "--tiny", "--output", str(tmp_path / "gpu.json")])
    finally:
        torch.set_num_threads(threads)
    found = json.loads((tmp_path / "gpu.json").read_text())
    figures = found["parts"]["gpu"]["figures"]
    assert [each["what"].split()[0] for each in figures] == ["local", "2", "student", "FedGO"]
    for each in figures:
        assert each["ratio"] > 0
        assert each["of_flops"] == pytest.approx(each["flops"] / each["ours"] / found["chip"]["flops_per_second"])
        assert each["of_bytes"] == pytest.approx(each["bytes"] / each["ours"] / found["chip"]["bytes_per_second"])
    assert "TFLOP/s" in capsys.readouterr().out
