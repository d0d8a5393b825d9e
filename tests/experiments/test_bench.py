"""The bench: how figures are made of turns, the page that keeps what is by hand, and parts at their smallest."""

import asyncio
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from contract.tensors import write_file
from experiments.bench import __main__ as bench_main
from experiments.bench import average, device, distillation, networks, page, simulations, training
from experiments.bench.fleet import Bare, Fleet
from experiments.bench.measuring import Bench, Figure, Pairs, Taken
from experiments.bench.payloads import Payload, check_mean, model, write_model
from experiments.bench.reference import Reference
from experiments.bench.registry import PARTS
from experiments.bench.table import shown


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Bench(True, tmp_path)
    torch.set_num_threads(threads)


# -------------------------------------------------------------------------------------------------------------- figures
def test_sides_take_turns_and_who_begins_changes(bench: Bench) -> None:
    said: list[str] = []

    def side(name: str, value: float) -> Any:
        def work() -> Taken:
            said.append(name)
            return Taken(value, 2 * value)

        return work

    pairs = bench.turns("turns", side("ours", 3.0), side("other", 2.0), 3)
    assert said == ["ours", "other", "other", "ours", "ours", "other"]
    assert pairs.values() == ([3.0, 3.0, 3.0], [2.0, 2.0, 2.0])
    assert pairs.processor() == [1.5, 1.5, 1.5]


def test_the_ratio_is_the_median_over_pairs_and_says_how_much_worse_ours_is() -> None:
    seconds = Figure("x", "s", "y", Pairs.of([2.0, 9.0, 3.0], [1.0, 3.0, 3.0])).document()
    assert (seconds["ours"], seconds["other"], seconds["ratio"]) == (3.0, 3.0, 2.0)  # 2/1, 9/3, 3/3
    assert seconds["ratios"] == [1.0, 3.0]
    assert seconds["processor_ratio"] is None
    rate = Figure("x", "MB/s", "y", Pairs.of([10.0], [40.0])).document()
    assert rate["ratio"] == 4.0


def test_every_part_is_there() -> None:
    assert all(find_spec(f"experiments.bench.{part}") for part in PARTS)


# ----------------------------------------------------------------------------------------------------- command and page
def _figure(ratio: float, limit: float | None = None) -> dict[str, Any]:
    return Figure("seconds of it", "s", "a loop", Pairs.of([ratio], [1.0]), limit).document()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Part -> the ratio that it measures; limit 1.05."""
    ratios: dict[str, float] = {}

    def measure_of(part: str) -> Any:
        return lambda _: iter([Figure("seconds of it", "s", "a loop", Pairs.of([ratios[part]], [1.0]), 1.05)])

    monkeypatch.setattr(bench_main, "measure_of", measure_of)
    return ratios


def test_a_run_writes_json_and_fails_beyond_a_limit(
    measured: dict[str, float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured["device"] = 1.01
    assert bench_main.main(["--only", "device", "--output", str(tmp_path / "bench.json")]) == 0
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["parts"]["device"]["figures"][0]["ratio"] == 1.01
    measured.clear()  # from here on measuring would be a KeyError
    assert bench_main.main(["--figures", str(tmp_path / "bench.json"), "--page", str(tmp_path / "page.md")]) == 0
    assert "1.01 (1.01 to 1.01)" in (tmp_path / "page.md").read_text()
    assert found["machine"]["cores"] >= 1
    measured["device"] = 1.2
    assert bench_main.main(["--only", "device"]) == 1
    assert "beyond its limit of 1.05" in capsys.readouterr().out


def test_the_page_keeps_other_parts_and_what_is_by_hand(measured: dict[str, float], tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    measured |= {"device": 1.0, "average": 0.5}
    bench_main.main(["--only", "device", "--only", "average", "--page", str(path)])
    text = path.read_text()
    assert text.index("### average") < text.index("### device")  # in the order of the registry
    path.write_text(
        text.replace("## What did not pay\n", "## What did not pay\n\nLess than hoped.\n") + "## More\n\nX.\n"
    )
    measured["average"] = 0.25
    bench_main.main(["--only", "average", "--page", str(path)])
    again = path.read_text()
    assert "Less than hoped.\n" in again and "## More\n\nX.\n" in again
    assert "0.25 (0.25 to 0.25)" in again and "0.50 (0.50 to 0.50)" not in again
    assert "1.00 (1.00 to 1.00)" in again
    assert (tmp_path / "img" / "bench-average.png").exists()
    page.write(path, {"parts": {}, "machine": {}, "quick": True})
    assert path.read_text() == again


def test_no_limit_is_none_beyond(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown({"parts": {"average": {"figures": [_figure(9.0)], "seconds": 1}}}) == []


# ------------------------------------------------------------------------------------------------- the bare service
def test_the_bare_service_closes_a_round_with_the_mean_and_wakes_its_devices(tmp_path: Path) -> None:
    base = write_model("tiny", tmp_path / "model.safetensors")
    payloads = [Payload.of(base, number) for number in range(3)]

    async def run(service: Reference) -> float:
        system = Bare(service.url, service.pid or 0)
        await system.create(tmp_path / "model.safetensors", 3)
        fleet = Fleet(system, payloads, 3, watchers=2)
        await fleet.enrol()
        await fleet.begin()
        sent = await fleet.upload(range(3))
        first, last = await fleet.woken()
        await fleet.fetch(tmp_path / "round.safetensors")
        await system.http.aclose()
        assert first <= last
        return last - sent

    with Reference(tmp_path / "bare") as service:
        asyncio.run(run(service))
    check_mean(tmp_path / "round.safetensors", base, 3)


def test_a_model_has_no_variance_that_a_service_refuses() -> None:
    made = model("M")
    assert all((values >= 0).all() for name, values in made.items() if name.endswith("running_var"))
    assert sum(values.nbytes for values in made.values()) == pytest.approx(45e6, rel=0.02)


def test_a_model_that_is_not_the_mean_is_told(tmp_path: Path) -> None:
    base = write_model("tiny", tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match="not the mean"):
        check_mean(tmp_path / "model.safetensors", base, 100)


def test_a_payload_is_a_file_that_the_contract_reads(tmp_path: Path) -> None:
    base = {"w": np.array([1.0, 2.0], np.float32), "n": np.array(1)}
    payload = Payload.of(base, 1)  # adds 2e-4
    (tmp_path / "update").write_bytes(b"".join(payload.chunks(payload.head({"num_samples": "3"}))))
    found = load_file(tmp_path / "update")
    assert np.allclose(found["w"], [1.0002, 2.0002])
    assert found["n"] == 1


# ------------------------------------------------------------------------------------------------------ parts, smallest
def test_the_mean_in_numpy_and_in_python(tmp_path: Path) -> None:
    sources = average.files(tmp_path, 3, 0.004)
    average.in_numpy(sources, tmp_path / "numpy")
    average.in_python(sources, tmp_path / "python")
    # (1 a + 2 b + 3 c) / 6
    values = [load_file(source.path)["weight"] for source in sources]
    wanted = (values[0] + 2 * values[1] + 3 * values[2]) / 6
    for name in ("numpy", "python"):
        assert np.allclose(load_file(tmp_path / name)["weight"], wanted, atol=1e-6)


def test_plain_loops_give_what_ours_give(bench: Bench) -> None:
    inputs, labels = training.images(70, 0)  # two batches of a discriminator's: momentum counts
    paths = training.write_networks("convnet", bench.folder, 2)
    figures = [
        distillation.measure_labels(bench, "convnet", paths, inputs, "cpu", 1),
        distillation.measure_student(
            bench, "convnet", paths[0], inputs, training.label("convnet", paths, inputs, "cpu"), "cpu", 2, 1
        ),
        device.measure_training(bench, "convnet", inputs, labels, "cpu", 2, 1),
        device.measure_discriminator(bench, "disc-cnn-mlp", inputs, labels, "cpu", 1),
    ]
    assert all(figure.ratios[0] > 0 for figure in figures)


def test_networks_that_differ_are_told() -> None:
    with pytest.raises(RuntimeError, match="different weights"):
        training.check_same(nn.Linear(2, 2), nn.Linear(2, 2), "x")


def test_both_sides_of_a_graph_work() -> None:
    for work in networks.both("mlp", 4):
        work()


def test_labels_that_differ_are_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = training.write_networks("mlp", bench.folder, 2)
    inputs, _ = training.images(8, 0)
    monkeypatch.setattr(training, "label", lambda *_: torch.zeros(8, 10))
    write_file(paths[0], {name: 9 * value for name, value in load_file(paths[0]).items()})
    with pytest.raises(RuntimeError, match="different labels"):
        distillation.measure_labels(bench, "mlp", paths, inputs, "cpu", 1)


# ---------------------------------------------------------------------------------------------------------- simulations
WORK = simulations.Work(clients=20, asked=3, rounds=3, epochs=1)


def test_the_other_simulation_is_given_what_ours_has(bench: Bench) -> None:
    simulations.prepare(WORK, bench.folder)
    with np.load(bench.folder / "data.npz") as data:
        assert sum(len(data[f"y{number}"]) for number in range(20)) + len(data["test_y"]) == 1797
        assert data["x0"].dtype == np.float32
        assert data["x0"].shape[1:] == (1, 8, 8)
    norm = [(16,), (16,), (16,), (16,), (16,), ()]
    with np.load(bench.folder / "first.npz") as first:
        shapes = [first[name].shape for name in first.files]
    assert shapes[:7] == [(16, 1, 3, 3), *norm]
    assert shapes[-2:] == [(10, 128), (10,)]


@pytest.mark.chaos
def test_what_our_simulation_leaves_is_read(bench: Bench) -> None:
    """Flower itself is not here; its side is tried where it is measured."""
    seen = simulations.ours(WORK, bench.folder)
    assert 0 < seen.round < seen.whole
    assert seen.processor > 0
    assert 0 < seen.accuracy < 1
