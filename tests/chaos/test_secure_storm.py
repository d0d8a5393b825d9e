"""Kills in secure rounds, in small; and that what judges their sums finds a false one."""

from pathlib import Path

import numpy as np
import pytest

from tools.chaos.secure import PLAN, SecureStorm, SecureWorld, differences
from tools.chaos.storm import Report


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_devices_and_servers_are_killed_between_phases_and_sums_are_the_mean(tmp_path: Path) -> None:
    world, lines, report = SecureWorld(tmp_path, "embedded", rounds=2), list[str](), Report(seed=17)
    try:
        storm = SecureStorm(world, report, report.seed, longest=0.5, out=lines.append)
        storm.federation("by-samples", 6, only=["device", "api", "device", "worker"])
    finally:
        report.faults += world.close()
    assert report.faults == [], "\n".join([*lines, *report.faults])
    assert report.kills["embedded device"] >= 1
    assert report.means >= 1 and report.means + report.skipped == 2


def test_a_mean_over_others_or_by_other_weights_is_found() -> None:
    random = np.random.default_rng(0)
    updates = {name: {"w": random.normal(size=8).astype(np.float32)} for name in "abc"}
    samples = {"a": 10, "b": 20, "c": 30}
    weighted = [samples[name] * updates[name]["w"].astype(np.float64) for name in "abc"]
    mean = np.sum(weighted, axis=0) / 60
    steps = mean + 0.4 * PLAN.fixed.step
    assert differences({"w": steps.astype(np.float32)}, updates, samples) == []
    assert differences({"w": mean.astype(np.float32)}, updates, dict.fromkeys("abc", 1)) != []
    assert differences({"w": mean.astype(np.float32)}, {**updates, "c": updates["a"]}, samples) != []
    assert differences({"w": (mean + 1e-6).astype(np.float32)}, updates, samples) != []
