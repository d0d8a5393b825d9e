"""docker-compose.yml without Docker: checked against the schema, and its commands, settings, secrets by file and proxy
configuration run as processes: two API replicas behind TLS, a worker a queue, PostgreSQL, Redis and an S3 store.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.bucket_server import BucketServer
from tools.deployment import ROOT, add_server_data, federation_request, run_federation

from .composed import COMPOSE, SERVICES, Composed


def test_the_compose_file_follows_its_schema() -> None:
    schema = json.loads((ROOT / "tests/e2e/schema/compose-spec.json").read_text())
    known = {key: value for key, value in COMPOSE.items() if key != "name"}  # younger than the copy of the schema
    jsonschema.Draft201909Validator(schema).validate(known)


def test_every_service_is_bounded_pinned_and_watched() -> None:
    for name, service in SERVICES.items():
        assert service["deploy"]["resources"]["limits"]["memory"], name
        if "build" not in service:
            assert re.search(r":\d+\.\d+", service["image"]), f"{name}: {service['image']} is not pinned"
        assert "healthcheck" in service or service.get("restart") == "no", name
    for name in ("api", "worker", "migrate", "proxy", "redis"):
        assert SERVICES[name]["read_only"] and SERVICES[name]["cap_drop"] == ["ALL"], name
    assert SERVICES["api"]["deploy"]["replicas"] >= 2
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]


def test_no_secret_is_in_an_environment() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|KEY|DATABASE_URL", variable):
                assert variable.endswith("_FILE") and value.removeprefix("/run/secrets/") in service["secrets"], name
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_images_run_as_nobody_in_particular_and_the_api_has_no_torch() -> None:
    text = (ROOT / "Dockerfile").read_text()
    for target in ("api", "worker"):
        stage = text.split(f" AS {target}\n")[1].split("\nFROM ")[0]
        assert "\nUSER potstill\n" in stage
    api = re.search(r"pip install .*'\.\[(.*)\]'", text.split(" AS api\n")[1])
    assert api
    wanted, seen = set(api[1].split(",")), set()
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    while wanted:
        extra = wanted.pop()
        seen.add(extra)
        for item in extras[extra]:
            assert not item.startswith("torch"), f"the API image's extra {extra!r} brings torch"
            found = re.match(r"potstill\[(.*)\]", item)
            wanted |= set(found[1].split(",")) - seen if found else set()
    assert seen == {"service", "postgres", "redis", "s3", "otel"}


def test_secrets_are_made_once(secrets: Path) -> None:
    made = {path.name: path.read_text() for path in secrets.iterdir()}
    assert set(made) == set(COMPOSE["secrets"])
    identity = json.loads(made["s3_identities"])["identities"][0]["credentials"][0]
    assert identity["accessKey"] == made["s3_access_key"].strip()


@pytest.mark.slow
@pytest.mark.skipif("POTSTILL_TEST_DISTRIBUTED" not in os.environ, reason="make test-distributed")
def test_a_federation_over_tls_through_two_replicas_with_no_disk_in_common(
    tmp_path: Path, composed: Composed, bucket_server: BucketServer
) -> None:
    composed.start_proxy()
    for queue in ("cpu", "gpu"):
        composed.start_queue_worker(queue)
    add_server_data(composed)
    recipe = {"name": "feddf", "options": {"schedule": {"epochs": 1}}}
    federation, reports = run_federation(composed, tmp_path / "devices", federation_request("far", recipe))
    assert federation.state == "finished"
    assert all(report.rounds_trained == 2 for report in reports.values())
    kinds = {(job.kind, job.queue) for job in composed.operator.each(composed.operator.jobs)}
    assert kinds == {("initialize", "cpu"), ("round", "gpu")}
    for number in range(2):
        assert list((tmp_path / "home" / f"api-{number}").rglob("*.db")) == []
    bucket = composed.blob_url.removeprefix("s3://")
    assert any(f"/{bucket}/blobs/" in line for line in bucket_server.door.seen)


def test_the_chart_has_what_the_compose_file_has() -> None:
    """Structure of the chart: its values follow their schema, and every setting that a template names is one."""
    folder = ROOT / "deploy/helm/potstill"
    values = yaml.safe_load((folder / "values.yaml").read_text())
    jsonschema.validate(values, json.loads((folder / "values.schema.json").read_text()))
    from service.config import Settings

    known = {f"POTSTILL_{name.upper()}" for name in Settings.model_fields}
    text = "\n".join(path.read_text() for path in (folder / "templates").iterdir())
    named = set(re.findall(r"POTSTILL_[A-Z0-9_]+", text))
    assert {name.removesuffix("_FILE") for name in named} <= known
    for path in (folder / "templates").glob("*.yaml"):
        for line in path.read_text().splitlines():
            assert len(re.findall(r"\{\{.*?\}\}", line)) == line.count("{{"), (path.name, line)
    for used in re.findall(r"\.Values\.([A-Za-z0-9_.]+)", text):
        found: Any = values
        for part in used.split("."):
            assert part in found, f"values.yaml has no {used}"
            found = found[part]


def test_helm_renders_and_lints_the_chart() -> None:
    """With Helm's own engine, where `pip install helm-python-sdk` (75 MB) has brought it."""
    chart = pytest.importorskip("helm_python.chart", reason="NO HELM ENGINE, the chart is only looked at")
    folder = str(ROOT / "deploy/helm/potstill")
    assert chart.lint(folder, strict=True)["errors"] == []
    kinds: set[str] = set()
    for values in ({}, {"ingress": {"enabled": True}, "api": {"autoscaling": {"enabled": False}}}):
        for text in chart.Chart.load(folder).render(values, name="x").values():
            kinds |= {made["kind"] for made in yaml.safe_load_all(text) if made}
    assert kinds >= {"Deployment", "StatefulSet", "Job", "Ingress", "NetworkPolicy", "HorizontalPodAutoscaler"}
