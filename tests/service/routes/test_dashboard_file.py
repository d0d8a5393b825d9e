"""The Grafana dashboard asks for what the service exports: names, labels, and the values that it picks."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.operations.store import workers

from ..world import World

BOARD: dict[str, Any] = json.loads((Path(__file__).parents[3] / "deploy/grafana/potstill.json").read_text())
PANELS: list[dict[str, Any]] = BOARD["panels"]
ASKED = [(each["expr"], each["legendFormat"]) for panel in PANELS for each in panel.get("targets", [])]
METRIC = re.compile(r"\b((?:potstill|process)_\w+)(\{[^}]*\})?")
ADDED = {"job", "instance"}
"""Labels that Prometheus adds."""


@pytest.fixture
def exported(world: World) -> dict[str, dict[str, set[str]]]:
    """Return name -> label -> its values, of a service in which everything has happened that is counted."""
    fed = world.running(["a"])
    world.push(fed, "a", b"no file")
    with world.store.write() as session:
        workers.heartbeat(session, "wrk_1", "host", 1, "cpu", None)
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(world.op("GET", "/metrics").text):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


def test_what_it_asks_for_is_exported(world: World, exported: dict[str, dict[str, set[str]]]) -> None:
    routes = {getattr(route, "path", "") for route in world.app.routes}
    for expression, legend in ASKED:
        metrics = METRIC.findall(expression)
        assert metrics, expression
        for name, selector in metrics:
            assert name in exported, expression
            assert 'job="$job"' in selector, f"{expression}: of all installations"
            for label, sign, value in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', selector):
                assert label in ADDED | exported[name].keys(), expression
                if label == "state":
                    assert set(value.split("|")) <= exported[name]["state"], expression
                if label == "route":
                    assert sign == "!~" and all(any(map(re.compile(one).fullmatch, routes)) for one in value.split("|"))
        labels = set().union(*(exported[name] for name, _ in metrics)) | ADDED
        grouped = [word.strip() for found in re.findall(r"by \(([^)]*)\)", expression) for word in found.split(",")]
        assert set(grouped) <= labels, expression
        shown = set(re.findall(r"{{(\w+)}}", legend))
        assert shown <= (set(grouped) if grouped else ADDED), f"{expression}: nothing of it is left to be shown"


def test_all_that_the_service_counts_by_itself_is_shown(exported: dict[str, dict[str, set[str]]]) -> None:
    asked = {name for expression, _ in ASKED for name, _ in METRIC.findall(expression)}
    ours = {name for name in exported if name.startswith("potstill_")}
    left = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in ours - asked}
    assert left <= {re.sub(r"_(bucket|total)$", "", name) for name in asked}


def test_panels_have_a_place_of_their_own() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in PANELS)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24
    sources = [target["datasource"] for panel in PANELS for target in panel.get("targets", [])]
    assert all(source == {"type": "prometheus", "uid": "${source}"} for source in sources)
