"""PostgreSQL and Redis: the commands and the environment of docker-compose.yml, run as processes."""

import json
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ROOT, Deployment, add_server_data, federation_request
from .test_federation import run_federation

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVER = os.environ.get("POTSTILL_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
POSTGRES = SERVER.replace("postgresql://", "postgresql+psycopg://").rpartition("/")[0]
REDIS = os.environ.get("POTSTILL_TEST_REDIS", "redis://127.0.0.1:6379/9")


def _postgres(statement: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    try:
        with psycopg.connect(SERVER, connect_timeout=3, autocommit=True) as link:
            link.execute(statement)
    except psycopg.OperationalError as error:
        pytest.skip(f"NO POSTGRESQL at {SERVER}, the distributed mode is not tested: {error}")


def _redis() -> None:
    redis = pytest.importorskip("redis")
    try:
        with redis.Redis.from_url(REDIS) as link:
            link.flushdb()
    except redis.exceptions.ConnectionError as error:
        pytest.skip(f"NO REDIS at {REDIS}, the distributed mode is not tested: {error}")


@pytest.fixture
def distributed(tmp_path: Path) -> Iterator[Deployment]:
    _redis()
    name = f"potstill_{uuid.uuid4().hex[:12]}"
    _postgres(f"CREATE DATABASE {name}")
    deployment = Deployment(
        tmp_path / "home",
        POTSTILL_DATABASE_URL=f"{POSTGRES}/{name}",
        POTSTILL_BROKER_URL=REDIS,
        POTSTILL_SECRET="a secret of at least sixteen characters",
        POTSTILL_BLOB_DIR=str(tmp_path / "weights"),
    )
    try:
        yield deployment
    finally:
        deployment.close()
        _postgres(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.slow
def test_a_federation_on_postgresql_and_redis(distributed: Deployment, tmp_path: Path) -> None:
    distributed.start_api()
    distributed.start_worker()
    add_server_data(distributed)
    recipe = {"name": "feddf", "options": {"schedule": {"epochs": 1}}}
    federation, reports = run_federation(distributed, tmp_path / "devices", federation_request("far", recipe))
    assert federation.state == "finished"
    assert [index for index, _ in federation.accuracies] == [1, 2]
    assert all(report.rounds_trained == 2 for report in reports.values())
    assert not (tmp_path / "home" / "queue").exists(), "the embedded queue was used"


def _command(target: str) -> list[str]:
    """Return the CMD of a target of the Dockerfile."""
    stage = (ROOT / "Dockerfile").read_text().split(f" AS {target}\n")[1]
    found = re.search(r"^CMD (\[.*?\])", stage.replace("\\\n", ""), re.MULTILINE | re.DOTALL)
    assert found
    return list(json.loads(found[1]))


def test_compose_runs_what_the_tests_run(distributed: Deployment) -> None:
    """The variables of the compose file are settings, and its programs are those that the end-to-end tests start."""
    settings = {f"POTSTILL_{name.upper()}" for name in type(distributed.settings).model_fields}
    for service in ("api", "worker", "migrate"):
        named = {name.removesuffix("_FILE") for name in COMPOSE["services"][service]["environment"]}
        assert named <= settings
    assert _command("api")[:5] == ["python", "-m", "uvicorn", "service.app:create_app", "--factory"]
    assert _command("worker")[:6] == ["python", "-m", "celery", "-A", "worker.app", "worker"]
    assert COMPOSE["services"]["migrate"]["command"] == ["potstill", "migrate"]


def _conditions(service: dict[str, Any]) -> dict[str, str]:
    return {name: each["condition"] for name, each in service.get("depends_on", {}).items()}


def test_compose_starts_in_order() -> None:
    """Every service that is waited for has a health check, or is waited for to its end."""
    services = COMPOSE["services"]
    for service in services.values():
        for name, condition in _conditions(service).items():
            assert condition == "service_completed_successfully" or "healthcheck" in services[name]
    assert _conditions(services["api"])["migrate"] == "service_completed_successfully"
