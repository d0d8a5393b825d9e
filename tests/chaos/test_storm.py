"""A dozen kills over two federations: `make chaos` in small."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.storm import Report, Storm
from tests.chaos.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, "embedded")
    yield made
    if not made.closed:
        made.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_dozen_kills_change_nothing(world: World) -> None:
    lines: list[str] = []
    report = Report(seed=7)
    storm = Storm(world, report, report.seed, longest=1.0, out=lines.append)
    storm.calm("fedavg")
    goal = 12
    while report.total < goal:
        storm.federation("fedavg", goal - report.total)
    report.faults += world.close()
    assert report.faults == [], "\n".join([*lines, *report.faults])
    assert report.equal == report.federations > 0
    assert report.updates == 12 * report.federations
    assert {kind.split()[1] for kind in report.kills} >= {"api", "worker", "broker"}
